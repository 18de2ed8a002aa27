// Stores chats in the browser (localStorage) for this page's address, with one entry for each chat. Nothing is deleted
// to make room: a chat that does not fit is not stored, and the page says so.
const kKeptPrefix = "tessera.chat.";
const kMaxKept = 100;             // number of chats
const kMaxKeptLetters = 4000000;  // characters of all chats together; browsers have room for about five million

// Returns the keys and texts of all stored chats.
function keptEntries() {
  return Object.keys(localStorage).filter((key) => key.startsWith(kKeptPrefix))
    .map((key) => [key.slice(kKeptPrefix.length), localStorage.getItem(key) || ""]);
}

// Returns [{id, json, wrong}], latest first; `wrong` says why an entry cannot be read.
function keptChats() {
  return keptEntries().map(([id, text]) => {
    try {
      return {id, json: checkChat(JSON.parse(text))};
    } catch (error) {
      return {id, wrong: error.message};
    }
  }).sort((a, b) => (b.json?.updated || "").localeCompare(a.json?.updated || ""));
}

function keptRoom() {
  const entries = keptEntries();
  return {chats: entries.length, letters: entries.reduce((sum, [, text]) => sum + text.length, 0)};
}

function readKept(id) {
  const text = localStorage.getItem(kKeptPrefix + id);
  if (text == null) throw new Error("It is not there any more: another tab may have deleted it.");
  return checkChat(JSON.parse(text));
}

// Stores a chat. Throws an Error that says why it could not be stored.
function writeKept(id, json) {
  const text = JSON.stringify(json);
  const old = localStorage.getItem(kKeptPrefix + id);
  const room = keptRoom();
  if (old == null && room.chats >= kMaxKept) throw new Error(`${kMaxKept} chats are kept already, and no more can be`);
  const left = Math.max(0, kMaxKeptLetters - room.letters + (old?.length || 0));
  if (text.length > left) {
    throw new Error(`it has ${countText(text.length)} characters, and of ${countText(kMaxKeptLetters)} for all chats ${countText(left)} are left`);
  }
  try {
    localStorage.setItem(kKeptPrefix + id, text);
  } catch (error) {
    throw new Error(error.name === "QuotaExceededError" ? "the browser has no more room for this page" : error.message);
  }
}

function forgetKept(id) {
  localStorage.removeItem(kKeptPrefix + id);
}

// Returns a random id. Pages without TLS from another machine have no crypto.randomUUID.
const newId = () => [...crypto.getRandomValues(new Uint32Array(4))].map((word) => word.toString(16).padStart(8, "0")).join("");

// Stores the conversation as it is now, or deletes its entry if the conversation is empty. If another tab has changed
// the entry meanwhile, that entry stays and this conversation is stored as a copy.
function keep(conversation) {
  const note = byId("keep-note");
  try {
    const json = conversation.toJson();
    if (!json.messages.length) {
      if (conversation.id) forgetKept(conversation.id);
      conversation.id = null;
      return;
    }
    const there = conversation.id && localStorage.getItem(kKeptPrefix + conversation.id);
    if (there && JSON.parse(there).updated !== conversation.stored) {
      conversation.id = null;
      json.title = conversation.title = `${Conversation.titleOf(json)} (copy)`.slice(0, kMaxTitle);
    }
    const id = conversation.id || newId();
    writeKept(id, json);
    Object.assign(conversation, {id, stored: json.updated});
    note.hidden = true;
  } catch (error) {
    setText(note, `This chat is not kept: ${error.message}. Delete or export chats to make room.`);
    note.hidden = false;
  }
}
