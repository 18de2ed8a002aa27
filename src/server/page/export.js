// Exports chats to files and imports them: JSON can be imported again, Markdown is for reading.
const kExportFormat = "tessera-chats";
const kMaxImport = 50e6;  // bytes of a file

const exportedJson = (chats) => `${JSON.stringify({format: kExportFormat, version: 1, chats}, null, 2)}\n`;

function exportedMarkdown(json) {
  const shown = ({content, images = []}) => [...images.map((url, i) => `![Image ${i + 1}](${url})`), content].filter(Boolean).join("\n\n");
  const parts = json.messages.map((message) =>
    json.kind === "text" ? message.content : `## ${message.role === "user" ? "Question" : "Answer"}\n\n${shown(message)}`);
  return `# ${Conversation.titleOf(json)}\n\n${parts.join(json.kind === "text" ? "" : "\n\n")}\n`;
}

// Returns the chats in a file's text. Throws an Error that says what is wrong.
function importedChats(text) {
  let json;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new Error(`it is no JSON (${error.message})`);
  }
  if (json?.format !== kExportFormat) throw new Error(`its "format" is ${JSON.stringify(json?.format)?.slice(0, 40) ?? "missing"}; accepted: "${kExportFormat}"`);
  if (json.version !== 1) throw new Error(`its "version" is ${JSON.stringify(json.version)?.slice(0, 40) ?? "missing"}; accepted: 1`);
  if (!Array.isArray(json.chats)) throw new Error("its \"chats\" is no list; accepted: a list of chats");
  return json.chats.map((chat, i) => {
    try {
      return checkChat(chat);
    } catch (error) {
      throw new Error(`in chats[${i}], ${error.message}`);
    }
  });
}

const fileName = (title, ending) => `${title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "chat"}.${ending}`;

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], {type}));
  const anchor = make("a", {href: address, download: name});
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);  // browsers read the URL after the click
}
