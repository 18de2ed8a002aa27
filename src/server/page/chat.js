// The chat: turns sent to /v1/chat/completions, or single texts continued by /v1/completions where the model has no chat
// template; answers drawn as they stream.
const chat = {
  turns: [],        // {role, content} as the API takes them
  completes: false,  // the model has no chat template
  running: null,     // AbortController of the answer under way
};

const suggestionsOf = (completes) => completes
  ? ["Once upon a time, in the forest, there lived", "The three most important things about bees are"]
  : ["Tell me a story about a clever otter.", "Where do foxes live?", "What is 7 plus 5?"];

function showWelcome(model) {
  chat.completes = !model.chat;
  document.body.classList.toggle("completes", chat.completes);
  setText(byId("welcome-title"), chat.completes ? `Write with ${shortName(model.name)}` : `Chat with ${shortName(model.name)}`);
  setText(byId("welcome-text"), chat.completes
    ? "This model has no chat template. Begin a text, and it goes on from there."
    : "Ask something, or begin with one of these.");
  byId("input").placeholder = chat.completes ? "Begin a text" : "Message";
  byId("suggestions").replaceChildren(...suggestionsOf(chat.completes).map((text) =>
    make("button", {type: "button", onclick: () => { if (!chat.running) ask(text); }}, text)));
}

function fitInput() {
  const input = byId("input");
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
  byId("send").disabled = !chat.running && !input.value.trim();
}

function setRunning(controller) {
  chat.running = controller;
  const send = byId("send");
  send.classList.toggle("stop", controller != null);
  send.setAttribute("aria-label", controller ? "Stop" : "Send");
  byId("new-chat").hidden = byId("log").childElementCount === 0;
  fitInput();
}

// Keeps the end in view while it is in view.
function following(change) {
  const scroll = byId("chat-scroll");
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 48;
  change();
  if (atEnd) scroll.scrollTop = scroll.scrollHeight;
}

// The answer's elements and what they show.
class AnswerView {
  constructor(given) {
    this.given = given;  // the text that is continued, or null in a chat
    this.content = "";
    this.reasoning = "";
    this.calls = [];
    this.began = performance.now();
    this.said = make("div", {class: given == null ? "said waiting" : "said plain waiting"});
    this.foot = make("div", {class: "foot"});
    this.node = make("article", {class: "turn answer", "aria-label": "Answer", "aria-busy": "true"}, this.said, this.foot);
    this.draw();
  }

  // One event of the stream.
  take(event) {
    if (event.usage) this.usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const delta = choice.delta || {content: choice.text};
    for (const call of delta.tool_calls || []) {
      const known = this.calls[call.index ?? 0] ??= {name: "", arguments: ""};
      known.name += call.function?.name || "";
      known.arguments += call.function?.arguments || "";
    }
    this.reasoning += delta.reasoning_content || "";
    this.content += delta.content || "";
    const now = performance.now();
    if (this.first == null && (this.reasoning || this.content || this.calls.length)) this.first = now;
    if (this.answered == null && this.content) this.answered = now;
    if (!this.pending) {
      this.pending = true;
      requestAnimationFrame(() => { this.pending = false; following(() => this.draw()); });
    }
  }

  draw() {
    this.drawThought();
    const empty = !this.content && !this.calls.length;
    this.said.classList.toggle("waiting", !this.ended && empty);
    this.said.classList.toggle("live", !this.ended && !empty && this.given == null);
    if (this.given != null) this.said.replaceChildren(make("span", {class: "given"}, this.given), this.content);
    else drawMarkdown(this.said, this.content);
    this.drawCalls();
  }

  drawThought() {
    if (!this.reasoning) return;
    if (!this.thought) {
      this.thought = make("details", {class: "thought"}, make("summary"), make("div"));
      this.said.before(this.thought);
    }
    const [summary, text] = this.thought.children;
    const end = this.answered ?? (this.ended ? performance.now() : null);
    setText(summary, end ? `Thought for ${secondsText((end - this.first) / 1000)}` : "Thinking …");
    setText(text, this.reasoning.trim());
  }

  drawCalls() {
    if (!this.calls.length) return;
    this.callList ??= this.foot.parentNode.insertBefore(make("div"), this.foot);
    this.callList.replaceChildren(...this.calls.filter(Boolean).map((call) =>
      make("div", {class: "call"}, make("strong", {}, call.name), make("pre", {}, prettyJson(call.arguments)))));
  }

  end(note) {
    this.ended = true;
    const now = performance.now();
    this.node.setAttribute("aria-busy", "false");
    this.draw();
    const facts = [];
    const tokens = this.usage?.completion_tokens;
    if (tokens != null) facts.push(`${countText(tokens)} token${tokens === 1 ? "" : "s"}`);
    if (this.first != null) facts.push(`first after ${secondsText((this.first - this.began) / 1000)}`);
    if (tokens > 1 && now > this.first) facts.push(`${((tokens - 1) * 1000 / (now - this.first)).toPrecision(3)} tokens/s`);
    if (note) facts.push(note);
    else if (this.finish === "length") facts.push("cut at the token limit");
    this.foot.replaceChildren(...(this.content ? [copyButton(() => this.content, "Copy answer")] : []), facts.join(" · "));
    setText(byId("announcer"), this.content.slice(0, 2000));
  }

  fail(error) {
    this.end();
    this.foot.before(make("div", {class: "fault", role: "alert"}, error.message,
      error.detail ? make("small", {}, error.detail) : null));
  }
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function requestBody(text) {
  const body = {stream: true, stream_options: {include_usage: true}};
  const temperature = byId("temperature");
  if (temperature.value !== "" && temperature.checkValidity()) body.temperature = temperature.valueAsNumber;
  const most = byId("max-tokens");
  if (most.value !== "" && most.checkValidity()) body.max_tokens = most.valueAsNumber;
  if (chat.completes) return {max_tokens: 256, ...body, prompt: text};
  const system = byId("system").value.trim();
  body.messages = [...(system ? [{role: "system", content: system}] : []), ...chat.turns];
  const tools = givenTools();
  if (tools?.length) body.tools = tools;
  return body;
}

// The list, null where there is none, undefined where it is not one.
function givenTools() {
  const text = byId("tool-list").value.trim();
  if (!text) return null;
  try {
    const tools = JSON.parse(text);
    return Array.isArray(tools) ? tools : undefined;
  } catch {
    return undefined;
  }
}

async function ask(text) {
  const controller = new AbortController();
  byId("welcome").hidden = true;
  const view = new AnswerView(chat.completes ? text : null);
  const question = make("article", {class: "turn user", "aria-label": "You"}, make("div", {class: "said"}, text));
  byId("log").append(...(chat.completes ? [] : [question]), view.node);
  const scroll = byId("chat-scroll");
  scroll.scrollTop = scroll.scrollHeight;
  chat.turns.push({role: "user", content: text});
  const turns = chat.turns;
  setRunning(controller);
  try {
    const path = chat.completes ? "/v1/completions" : "/v1/chat/completions";
    for await (const event of postEvents(path, requestBody(text), controller.signal)) view.take(event);
    following(() => view.end());
  } catch (error) {
    following(() => {
      if (error.name === "AbortError") view.end("stopped");
      else view.fail(error);
    });
    if (error.status === 401) askForKey();
    if (view.first == null && turns === chat.turns && !byId("input").value) byId("input").value = text;
  }
  if (view.content) turns.push({role: "assistant", content: view.content});
  else turns.pop();  // a question without an answer is not asked again with the next one
  if (turns === chat.turns) setRunning(null);
}

function newChat() {
  chat.running?.abort();
  chat.turns = [];
  byId("log").replaceChildren();
  byId("welcome").hidden = false;
  setRunning(null);
  byId("input").focus();
}

function startChat() {
  const input = byId("input");
  input.addEventListener("input", fitInput);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!chat.running) byId("composer").requestSubmit();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("settings").open) chat.running?.abort();
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (chat.running) {
      chat.running.abort();
      return;
    }
    const text = input.value.trim();
    if (!text) return;
    input.value = "";
    ask(text);
  });
  byId("new-chat").addEventListener("click", newChat);
}
