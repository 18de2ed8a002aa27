// Views, settings, and the first look at the server.
const views = ["chat", "engine"];
const kEngineHash = "#live";  // no element's id: nothing is scrolled to

function showView(name) {
  for (const view of views) {
    const chosen = view === name;
    byId(view).hidden = !chosen;
    byId(`tab-${view}`).setAttribute("aria-selected", chosen);
    byId(`tab-${view}`).tabIndex = chosen ? 0 : -1;
  }
  byId("new-chat").hidden = name !== "chat" || byId("log").childElementCount === 0;
  history.replaceState(null, "", name === "chat" ? location.pathname : kEngineHash);
  if (name === "engine") poll();
  else if (matchMedia("(pointer: fine)").matches) byId("input").focus();
}

// What is set lives as long as the tab.
const kept = ["system", "temperature", "max-tokens", "api-key", "tool-list"];

function startSettings() {
  for (const id of kept) {
    byId(id).value = sessionStorage.getItem(`tessera.${id}`) || "";
    byId(id).addEventListener("input", () => {
      sessionStorage.setItem(`tessera.${id}`, byId(id).value);
      checkTools();
    });
  }
  checkTools();
  byId("open-settings").addEventListener("click", () => byId("settings").showModal());
  byId("settings").addEventListener("click", (event) => {
    if (event.target === byId("settings")) byId("settings").close();  // beside the sheet
  });
  byId("settings").addEventListener("close", () => { if (!engine.state) firstLook(); });
}

function checkTools() {
  const wrong = givenTools() === undefined;
  byId("tool-note").classList.toggle("wrong", wrong);
  setText(byId("tool-note"), wrong ? "This is no JSON list; it is not sent." : "A JSON list as in the API. Calls are shown, not carried out.");
}

function askForKey() {
  if (!byId("settings").open) byId("settings").showModal();
  byId("api-key").focus();
}

async function firstLook() {
  try {
    engine.state = await getJson("/engine_state");
    showModel(engine.state);
    showWelcome(engine.state.model);
  } catch (error) {
    setText(byId("welcome-title"), error.status === 401 ? "An API key, please" : "No answer from the server");
    setText(byId("welcome-text"), error.status === 401 ? "This server asks for one. It goes into the settings." : error.message);
    if (error.status === 401) askForKey();
    else setTimeout(firstLook, 3000);
  }
}

for (const view of views) {
  byId(`tab-${view}`).addEventListener("click", () => showView(view));
  byId(`tab-${view}`).addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = views[1 - views.indexOf(view)];
    showView(other);
    byId(`tab-${other}`).focus();
  });
}
startSettings();
startChat();
startEngine();
showView(location.hash === kEngineHash ? "engine" : "chat");
firstLook();
