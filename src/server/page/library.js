// The dialog with the stored chats: open, rename, delete, export, import.
const dateFormat = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "short"});

function showLibrary() {
  const list = byId("kept");
  let chats;
  try {
    chats = keptChats();
    const room = keptRoom();
    setText(byId("kept-room"), `${room.chats} of ${kMaxKept} chats, ${countText(room.letters)} of ${countText(kMaxKeptLetters)} characters.`);
  } catch (error) {
    chats = [];
    setText(byId("kept-room"), `This browser keeps nothing for this page: ${error.message}`);
  }
  list.replaceChildren(...chats.map(keptRow));
  byId("kept-none").hidden = chats.length > 0;
  for (const id of ["export-all", "delete-all"]) byId(id).hidden = !chats.length;
  byId("delete-sure").hidden = true;
}

function tellLibrary(text, wrong = false) {
  const note = byId("kept-note");
  setText(note, text);
  note.classList.toggle("wrong", wrong);
}

// Runs an action and shows an error if it fails.
function attempt(what, act) {
  try {
    act();
  } catch (error) {
    tellLibrary(`${what}: ${error.message}.`.replace(/\.\.$/, "."), true);
  }
}

function keptRow({id, json, wrong}) {
  const remove = iconButton("remove", "Delete", () => removeKept(row, id, title));
  const title = json ? Conversation.titleOf(json) : "Unreadable chat";
  const name = make("span", {class: "name"}, title);
  const row = make("li", {"data-id": id});
  if (!json) {
    fill(row, {}, [make("div", {class: "open"}, name, make("small", {}, wrong)), make("div", {class: "row-actions"}, remove)]);
    return row;
  }
  const questions = json.messages.filter((m) => m.role === "user").length;
  const show = () => attempt("It cannot be opened", () => {
    showConversation(Conversation.from(readKept(id), id));
    byId("library").close();
  });
  const open = make("button", {class: "open", type: "button", "aria-current": id === chat.now.id ? "true" : null, onclick: show}, name,
    make("small", {}, `${dateFormat.format(new Date(json.updated))} · ${questions} question${questions === 1 ? "" : "s"}`));
  const saveAs = (format, ending, type, text) => make("button", {class: "quiet", type: "button", "aria-label": `Export “${title}” as ${format}`,
    onclick: () => attempt("It cannot be exported", () => download(fileName(title, ending), type, text(readKept(id))))}, ending.toUpperCase());
  remove.setAttribute("aria-label", `Delete “${title}”`);
  const rename = iconButton("edit", `Rename “${title}”`, () => renameKept(row, id, open, title));
  fill(row, {}, [open, make("div", {class: "row-actions"}, rename, saveAs("Markdown", "md", "text/markdown", exportedMarkdown),
    saveAs("JSON", "json", "application/json", (read) => exportedJson([read])), remove)]);
  return row;
}

function renameKept(row, id, open, title) {
  const input = make("input", {type: "text", maxlength: String(kMaxTitle), "aria-label": "New name"});
  input.value = title;
  let left = false;
  const leave = (keepIt) => {
    if (left) return;
    left = true;
    if (keepIt && input.value.trim() && input.value.trim() !== title) {
      attempt("It cannot be renamed", () => {
        writeKept(id, {...readKept(id), title: input.value.trim()});
        if (chat.now.id === id) chat.now.title = input.value.trim();
      });
    }
    showLibrary();
    byId("kept").querySelector(`[data-id="${id}"] [aria-label^=Rename]`)?.focus();
  };
  input.addEventListener("blur", () => leave(true));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    leave(event.key === "Enter");
  });
  open.replaceWith(input);
  input.focus();
  input.select();
}

// Deletes a stored chat. Until the list is shown again, a line in its place offers to undo that.
function removeKept(row, id, title) {
  attempt("It cannot be deleted", () => {
    const text = localStorage.getItem(kKeptPrefix + id);
    forgetKept(id);
    const inView = chat.now.id === id;
    if (inView) newChat();
    const undo = make("button", {class: "quiet", type: "button", onclick: () => attempt("It cannot be taken back", () => {
      if (text != null) localStorage.setItem(kKeptPrefix + id, text);
      showLibrary();
    })}, "Undo");
    row.replaceChildren(make("p", {class: "gone"}, `“${title}” deleted.`, undo));
    undo.focus();
  });
}

async function importFile(file) {
  const name = `“${file.name}”`;
  let taken = 0;
  try {
    if (file.size > kMaxImport) throw new Error(`it has ${bytesText(file.size)}; accepted: at most ${bytesText(kMaxImport)}`);
    const chats = importedChats(await file.text());
    for (const json of chats) {
      writeKept(newId(), json);
      ++taken;
    }
    tellLibrary(`${taken} chat${taken === 1 ? "" : "s"} imported from ${name}.`);
  } catch (error) {
    const what = taken ? `Only the first ${taken} of the chats in ${name} were imported` : `${name} was not imported`;
    tellLibrary(`${what}: ${error.message}.`, true);
  }
  showLibrary();
}

function startLibrary() {
  const sheet = byId("library");
  byId("open-library").addEventListener("click", () => {
    tellLibrary("");
    showLibrary();
    sheet.showModal();
  });
  byId("close-library").addEventListener("click", () => sheet.close());
  sheet.addEventListener("click", (event) => { if (event.target === sheet) sheet.close(); });  // a click beside the sheet
  byId("export-all").addEventListener("click", () => attempt("They cannot be exported", () =>
    download("tessera-chats.json", "application/json", exportedJson(keptChats().filter((c) => c.json).map((c) => c.json)))));
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", async () => {
    const [file] = byId("import-file").files;
    if (file) await importFile(file);
    byId("import-file").value = "";
  });
  byId("delete-all").addEventListener("click", () => {
    byId("delete-sure").hidden = false;
    byId("delete-no").focus();
  });
  byId("delete-no").addEventListener("click", () => {
    byId("delete-sure").hidden = true;
    byId("delete-all").focus();
  });
  byId("delete-yes").addEventListener("click", () => {
    attempt("They cannot be deleted", () => {
      for (const [id] of keptEntries()) forgetKept(id);
      if (chat.now.id) newChat();
      tellLibrary("All chats are deleted.");
    });
    showLibrary();
    byId("close-library").focus();
  });
  addEventListener("storage", () => { if (sheet.open && !byId("kept").querySelector("input")) showLibrary(); });
}
