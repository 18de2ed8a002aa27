// The settings' dialog. It closes only if all values are accepted. A wrong value is neither stored nor sent; the dialog
// says which field is wrong, its value and what is accepted. Settings last as long as the tab.
const settings = {
  values: {},    // value of each field by its id, from read(); empty fields have no entry
  opened: null,  // the fields' texts when the sheet was opened
  wantsLogprobs: false,
  get apiKey() { return this.values["api-key"]; },
};

const textsOfFields = () => Object.fromEntries(settingFields.map(({id}) => [id, byId(id).value]));

// Stores the field's value. If the value is wrong, shows why and returns false.
function takeField({id, name, read}) {
  const field = byId(id), note = byId(`${id}-wrong`);
  let wrong = "";
  try {
    const value = read(field.value);
    if (value === undefined) delete settings.values[id];
    else settings.values[id] = value;
    sessionStorage.setItem(`tessera.${id}`, field.value);
  } catch (error) {
    const shown = id === "api-key" ? "This key" : `“${field.value.trim().slice(0, 40)}${field.value.trim().length > 40 ? "…" : ""}”`;
    wrong = `${name}: ${shown} is not accepted. Accepted: ${error.message}.`;
  }
  setText(note, wrong);
  note.hidden = !wrong;
  field.setAttribute("aria-invalid", Boolean(wrong));
  return !wrong;
}

// Stores all fields. If some are wrong, focuses the first of them and shows their number at the bottom of the dialog.
function takeSettings() {
  const wrong = settingFields.filter((field) => !takeField(field));
  setText(byId("settings-state"), !wrong.length ? "" : wrong.length === 1 ? byId(`${wrong[0].id}-wrong`).textContent
    : `Not accepted: ${wrong.map((field) => field.name).join(", ")}.`);
  if (wrong.length) byId(wrong[0].id).focus();
  return !wrong.length;
}

function openSettings() {
  if (byId("settings").open) return;
  settings.opened = textsOfFields();
  byId("settings").showModal();
}

function closeSettings() {
  if (takeSettings()) byId("settings").close();
}

function discardSettings() {
  for (const {id} of settingFields) byId(id).value = settings.opened[id];
  closeSettings();
}

function askForKey() {
  openSettings();
  byId("api-key").focus();
}

function startSettings() {
  const sheet = byId("settings");
  for (const field of settingFields) {
    const input = byId(field.id);
    const note = make("p", {class: "note wrong", id: `${field.id}-wrong`, hidden: true});
    input.closest(".setting").append(note);
    input.setAttribute("aria-describedby", `${input.getAttribute("aria-describedby") || ""} ${note.id}`.trim());
    input.value = sessionStorage.getItem(`tessera.${field.id}`) || "";
    takeField(field);
    // Shows no error for a value that is still being typed, but updates an error that is already visible.
    input.addEventListener("input", () => { if (!note.hidden) takeField(field); });
    input.addEventListener("change", () => takeField(field));
  }
  const logprobs = byId("logprobs");
  logprobs.checked = settings.wantsLogprobs = sessionStorage.getItem("tessera.logprobs") === "yes";
  logprobs.addEventListener("change", () => {
    settings.wantsLogprobs = logprobs.checked;
    sessionStorage.setItem("tessera.logprobs", logprobs.checked ? "yes" : "");
  });
  byId("open-settings").addEventListener("click", openSettings);
  byId("discard-settings").addEventListener("click", discardSettings);
  sheet.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); closeSettings(); });
  sheet.addEventListener("click", (event) => { if (event.target === sheet) closeSettings(); });  // a click beside the sheet
  // Browsers close a dialog at the second Escape even if its "cancel" event is prevented. Preventing the keydown stops
  // them.
  sheet.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.preventDefault(); closeSettings(); } });
  sheet.addEventListener("cancel", (event) => { event.preventDefault(); closeSettings(); });
  sheet.addEventListener("close", () => {
    if (!takeSettings()) sheet.showModal();  // closed by other means, such as a phone's back gesture
    else if (!engine.state) firstLook();
  });
}
