// Starts the page: its views, and the first request to the server.
const views = ["chat", "engine"];
const kEngineHash = "#live";  // not the id of an element, so the page does not scroll

function showView(name) {
  for (const view of views) {
    const chosen = view === name;
    byId(view).hidden = !chosen;
    byId(`tab-${view}`).setAttribute("aria-selected", chosen);
    byId(`tab-${view}`).tabIndex = chosen ? 0 : -1;
  }
  showParts();
  history.replaceState(null, "", name === "chat" ? location.pathname : kEngineHash);
  if (name === "engine") poll();
  else if (matchMedia("(pointer: fine)").matches) byId("input").focus();
}

async function firstLook() {
  try {
    engine.state = await getJson("/engine_state");
    showModel(engine.state);
    showWelcome(engine.state.model);
    showParts();
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
startImages();
startLibrary();
startEngine();
showView(location.hash === kEngineHash ? "engine" : "chat");
firstLook();
