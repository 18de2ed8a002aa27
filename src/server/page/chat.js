// The chat in view. It sends questions to /v1/chat/completions and draws answers while they stream. If the model has no
// chat template, it continues texts by /v1/completions.
const chat = {
  now: null,         // the Conversation in view
  completes: false,  // the model has no chat template
  images: false,     // the model reads images
  running: null,     // AbortController of the running answer
};

const suggestionsOf = (completes) => completes
  ? ["Once upon a time, in the forest, there lived", "The three most important things about bees are"]
  : ["Tell me a story about a clever otter.", "Where do foxes live?", "What is 7 plus 5?"];

function showWelcome(model) {
  chat.completes = !model.chat;
  chat.images = model.chat && model.images;
  byId("attach").hidden = !chat.images;
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
  byId("send").disabled = !chat.running && !input.value.trim() && !attached.length;
}

function setRunning(controller) {
  const changes = controller !== chat.running;
  chat.running = controller;
  const send = byId("send");
  send.classList.toggle("stop", controller != null);
  send.setAttribute("aria-label", controller ? "Stop" : "Send");
  byId("log").classList.toggle("busy", controller != null);
  showParts();
  fitInput();
  if (changes) poll(true);
}

// Shows the parts of the page that depend on whether there are exchanges, and on which one is the last.
function showParts() {
  const {exchanges} = chat.now;
  byId("welcome").hidden = byId("log").childElementCount > 0;
  byId("new-chat").hidden = byId("chat").hidden || byId("log").childElementCount === 0;
  exchanges.forEach((exchange, i) => exchange.node.classList.toggle("last", i === exchanges.length - 1));
}

// Applies a change to the log. If the log's end was in view before the change, it is in view afterwards.
function following(change) {
  const scroll = byId("chat-scroll");
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 48;
  change();
  if (atEnd) scroll.scrollTop = scroll.scrollHeight;
}

// Requests an answer to the last exchange of the chat in view.
async function answerTo(exchange) {
  const controller = new AbortController();
  const conversation = chat.now;
  const {completes} = exchange;
  const body = requestBody(conversation.exchanges.slice(0, -1), exchange);
  const answer = new Answer(completes ? exchange.question : null);
  exchange.show(answer);
  setRunning(controller);
  keep(conversation);
  byId("chat-scroll").scrollTop = byId("chat-scroll").scrollHeight;
  try {
    for await (const event of postEvents(requestPath(completes), body, controller.signal)) answer.take(event);
    following(() => answer.end());
  } catch (error) {
    following(() => {
      if (error.name === "AbortError") answer.end("stopped");
      else answer.fail(error);
    });
    if (error.status === 401) askForKey();
  }
  following(() => exchange.addActions());
  keep(conversation);
  if (conversation !== chat.now) return;
  setText(byId("announcer"), answer.content.slice(0, 2000));
  setRunning(null);
}

function ask(text, images = []) {
  if (chat.now.exchanges.length && chat.now.completes !== chat.completes) newChat();
  chat.now.completes = chat.completes;
  const exchange = new Exchange(text, chat.completes, null, images);
  for (const gone of byId("log").querySelectorAll(".gone")) gone.remove();
  chat.now.exchanges.push(exchange);
  byId("log").append(exchange.node);
  answerTo(exchange);
}

function exchangesAfter(exchange) {
  return chat.now.exchanges.slice(chat.now.exchanges.indexOf(exchange) + 1);
}

function answerAgain(exchange) {
  if (chat.running) return;
  for (const later of exchangesAfter(exchange)) later.node.remove();
  for (const gone of byId("log").querySelectorAll(".gone")) gone.remove();
  chat.now.exchanges.length = chat.now.exchanges.indexOf(exchange) + 1;
  answerTo(exchange);
  byId("input").focus();
}

// Removes an exchange. Until the next question, a line in its place offers to undo that.
function removeExchange(exchange) {
  if (chat.running) return;
  const {exchanges} = chat.now;
  const index = exchanges.indexOf(exchange);
  const before = exchanges[index - 1];
  exchanges.splice(index, 1);
  const undo = make("button", {class: "quiet", type: "button", onclick: () => {
    if (chat.running) return;
    exchanges.splice(before ? exchanges.indexOf(before) + 1 : 0, 0, exchange);
    line.replaceWith(exchange.node);
    keep(chat.now);
    showParts();
    exchange.node.querySelector("button").focus();
  }}, "Undo");
  const line = make("p", {class: "gone", role: "status"}, "Question and answer deleted.", undo);
  exchange.node.replaceWith(line);
  keep(chat.now);
  showParts();
  undo.focus();
}

function showConversation(conversation) {
  chat.running?.abort();
  chat.now = conversation;
  byId("log").replaceChildren(...conversation.exchanges.map((exchange) => exchange.node));
  byId("keep-note").hidden = true;
  setRunning(null);
  byId("chat-scroll").scrollTop = byId("chat-scroll").scrollHeight;
  byId("input").focus();
}

function newChat() {
  showConversation(new Conversation(chat.completes));
}

function startChat() {
  const input = byId("input");
  chat.now = new Conversation(false);
  input.addEventListener("input", fitInput);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!chat.running) byId("composer").requestSubmit();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) chat.running?.abort();
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (chat.running) {
      chat.running.abort();
      return;
    }
    const text = input.value.trim();
    if (!text && !attached.length) return;
    input.value = "";
    ask(text, takeAttached());
  });
  byId("new-chat").addEventListener("click", newChat);
}
