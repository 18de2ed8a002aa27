// A chat in the form in which it is stored, exported and imported: {title, created, updated, kind, messages}. `kind` is
// "chat" or "text", times are ISO 8601, and messages are {role, content} with the roles user and assistant. A user's
// message may have images, a list of data: URLs.
const kMaxTitle = 200;  // in characters

class Conversation {
  constructor(completes) {
    this.id = null;      // null until it is stored
    this.stored = null;  // the value of `updated` when this tab last read or wrote the chat
    this.title = "";     // empty until the chat is named; the first question is shown instead
    this.completes = completes;
    this.created = new Date().toISOString();
    this.exchanges = [];
  }

  static titleOf(json) {
    const first = json.messages[0]?.content.trim().split("\n")[0] || (json.messages[0]?.images ? "Image" : "Empty chat");
    return json.title || (first.length > 60 ? `${first.slice(0, 59)}…` : first);
  }

  toJson() {
    return {title: this.title, created: this.created, updated: new Date().toISOString(), kind: this.completes ? "text" : "chat",
      messages: this.exchanges.flatMap((exchange) => exchange.kept())};
  }

  // Makes a conversation from a stored chat. Precondition: `json` has passed checkChat().
  static from(json, id) {
    const made = new Conversation(json.kind === "text");
    Object.assign(made, {id, stored: json.updated, title: json.title, created: json.created});
    for (let i = 0; i < json.messages.length; ++i) {
      const {content: question, images} = json.messages[i];
      const answer = json.messages[i + 1]?.role === "assistant" ? json.messages[++i] : null;
      made.exchanges.push(new Exchange(question, made.completes, answer && {content: answer.content, reasoning: answer.reasoning_content}, images));
    }
    return made;
  }
}

// Throws an Error that says what is wrong with `json` and where. Returns `json` if it is valid.
function checkChat(json) {
  const wrong = (what, accepted) => { throw new Error(`${what}; accepted: ${accepted}`); };
  if (json === null || typeof json !== "object" || Array.isArray(json)) wrong("a chat is no object", "{title, created, updated, kind, messages}");
  if (typeof json.title !== "string" || json.title.length > kMaxTitle) wrong("\"title\" is wrong", `a text of at most ${kMaxTitle} characters`);
  for (const key of ["created", "updated"]) {
    if (typeof json[key] !== "string" || isNaN(Date.parse(json[key]))) wrong(`"${key}" is ${JSON.stringify(json[key])}`, "a time in ISO 8601");
  }
  if (json.kind !== "chat" && json.kind !== "text") wrong(`"kind" is ${JSON.stringify(json.kind)}`, "\"chat\" or \"text\"");
  if (!Array.isArray(json.messages)) wrong("\"messages\" is no list", "a list of {role, content}");
  json.messages.forEach((message, i) => {
    const where = `messages[${i}]`;
    if (typeof message?.content !== "string") wrong(`${where} has no text`, "{role, content} with a text as content");
    if (message.role !== "user" && message.role !== "assistant") wrong(`the role of ${where} is ${JSON.stringify(message.role)}`, "\"user\" or \"assistant\"");
    if (message.role === "assistant" && json.messages[i - 1]?.role !== "user") wrong(`${where} answers nothing`, "an answer right after a question");
    const {images = []} = message;
    if (!Array.isArray(images) || !images.every(isImage)) wrong(`"images" of ${where} is wrong`, "a list of data: URLs of PNG, JPEG or WebP images");
    if (!["undefined", "string"].includes(typeof message.reasoning_content)) wrong(`"reasoning_content" of ${where} is no text`, "a text, or none");
  });
  return json;
}
