// The live view of the engine. It polls /engine_state once a second while it is visible. While an answer streams, it
// polls even if it is hidden, so that its charts include the answer.
const kHistory_s = 300;

const engine = {
  timer: null,
  asking: false,
  again: false,  // poll once more, even if the view is hidden
  history: [],  // {t, running, queued, used, held, rate, forwards}, with t in seconds
  state: null,  // the latest state
  drawn: "",    // key of the picture's content and width
};

const shortName = (name) => name.replace(/\/+$/, "").split("/").pop() || name;

const percentText = (value) => shareText(value, 1);
const charts = {
  requests: new TimeChart({title: "Requests", unit: "requests", show: countText,
    series: [{key: "running", name: "running"}, {key: "queued", name: "waiting"}]}),
  output: new TimeChart({title: "Tokens per second", unit: "tokens/s", show: rateText, series: [{key: "rate", name: "output"}]}),
  kv: new TimeChart({title: "KV cache", unit: "% of all pages", show: percentText, most: 1,
    series: [{key: "used", name: "in use"}, {key: "held", name: "with cached prefixes"}]}),
  forwards: new TimeChart({title: "Forwards per second", unit: "forwards/s", show: rateText,
    series: [{key: "forwards", name: "all forwards"}]}),
};
const tiles = {};
function makeTiles() {
  for (const [id, label] of [["requests", "Requests running"], ["output", "Tokens per second"], ["kv", "KV cache in use"],
    ["forwards", "Forwards replayed"]]) {
    const value = make("p", {class: "value"}, "–");
    const sub = make("p", {class: "sub"});
    tiles[id] = {value, sub};
    byId("tiles").append(make("section", {class: "tile", "aria-label": label}, make("p", {class: "label"}, label), value, sub, charts[id].node));
  }
}

function setTile(tile, value, sub) {
  setText(tile.value, value);
  setText(tile.sub, sub);
}

const ladders = {prefill: new LadderChart("Prefill, by tokens", "tokens"), decode: new LadderChart("Decode, by requests", "requests"),
  vision: new LadderChart("Images, by patches", "patches")};

function remember(state) {
  const t = performance.now() / 1000;
  const before = engine.last;
  const rate = (now, then) => before && t > before.t ? Math.max(0, now - then) / (t - before.t) : null;
  const forwards = state.reasons.reduce((sum, r) => sum + r.count, 0);
  const {kv, totals, requests} = state;
  engine.history.push({
    t, running: requests.running, queued: requests.queued,
    used: kv.usable_pages ? kv.used_pages / kv.usable_pages : 0,
    held: kv.usable_pages ? (kv.used_pages + kv.cached_pages) / kv.usable_pages : 0,
    rate: rate(totals.output_tokens, before?.tokens), forwards: rate(forwards, before?.forwards),
  });
  engine.last = {t, tokens: totals.output_tokens, forwards};
  engine.history = engine.history.filter((point) => t - point.t <= kHistory_s);
}

function showTiles(state) {
  const {requests, kv, totals} = state;
  const now = engine.last.t;
  const span = Math.max(30, now - engine.history[0].t);
  const replayed = state.reasons.reduce((sum, r) => sum + (r.replayed ? r.count : 0), 0);
  const forwards = state.reasons.reduce((sum, r) => sum + r.count, 0);
  const latest = engine.history.at(-1);

  setTile(tiles.requests, countText(requests.running),
    `${countText(requests.queued)} waiting${requests.preemptions ? `, ${countText(requests.preemptions)} preempted so far` : ""}`);
  setTile(tiles.output, latest.rate == null ? "–" : rateText(latest.rate),
    `${countText(totals.output_tokens)} tokens since the start${totals.tokens_per_draft_forward ? `; ${totals.tokens_per_draft_forward.toFixed(1)} tokens per forward with drafts` : ""}`);
  setTile(tiles.kv, shareText(kv.used_pages, kv.usable_pages),
    `of ${countText(kv.usable_pages * kv.page_size)} tokens; prefix hits ${shareText(totals.cached_tokens, totals.prompt_tokens)}`);
  setTile(tiles.forwards, forwards ? shareText(replayed, forwards) : "–",
    `of ${countText(forwards)}; ${shareText(totals.padded_tokens, totals.forward_tokens + totals.padded_tokens)} of rows were padding`);
  for (const chart of Object.values(charts)) chart.show(engine.history, now, span);
}

function showModel(state) {
  const {model, device} = state;
  setText(byId("model-name"), shortName(model.name));
  byId("model-name").title = model.name;
  setText(byId("engine-title"), shortName(model.name));
  setText(byId("engine-text"), [model.architecture.replace(/ForCausalLM$/, ""), `${countText(model.parameters)} parameters`,
    `${model.layers} layers`, model.dtype, device.name, `attention: ${device.attention}`].join(" · "));
}

function showPicture(state) {
  const host = byId("picture");
  const key = JSON.stringify([host.clientWidth, state.prefill.groups, state.prefill.enabled, state.decode.enabled]);
  if (key === engine.drawn) return;
  engine.drawn = key;
  setText(byId("picture-lead"), state.prefill.split_ops
    ? "A prefill is cut at the operators that cannot be recorded for every shape. What lies between is captured once a size and replayed; a decode step is replayed whole."
    : "Nothing is cut here: a forward is one part.");
  drawPicture(host, state);
}

function showReasons(state) {
  const of = (what, reasons) => reasons.map((r) => ({...r, name: what + r.name, what}));
  const reasons = [...of("", state.reasons), ...of("Images: ", state.vision_reasons || [])];
  const total = reasons.reduce((sum, r) => sum + r.count, 0);
  const eager = reasons.filter((r) => !r.replayed).reduce((sum, r) => sum + r.count, 0);
  setText(byId("reasons-lead"), !total ? "No forward has run yet."
    : eager ? `${shareText(eager, total)} ran eagerly, operator by operator.` : "All so far were replayed from graphs.");
  const seen = reasons.filter((r) => r.count);
  const list = byId("reasons");
  const key = seen.map((r) => r.name).join();
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...seen.map((r) => make("li", {class: r.replayed ? "" : "eager"},
      make("span", {}, `${r.what}${r.replayed ? "Replayed" : "Eager"}: ${r.text}`), make("b"), make("i"))));
  }
  seen.forEach((r, i) => {
    const [, count, bar] = list.children[i].children;
    count.replaceChildren(countText(r.count), make("small", {}, shareText(r.count, total)));
    bar.style.setProperty("--share", r.count / total);
  });
}

const latencyNames = {first_token: "First token", next_token: "Between tokens", request: "Whole request"};
function showLatency(latency) {
  setText(byId("latency-lead"), `As the server saw them in the last ${Math.round(latency.window_s / 60)} minutes: ${countText(latency.request.count)} requests.`);
  byId("latency").replaceChildren(...Object.entries(latencyNames).map(([key, name]) => make("tr", {},
    make("th", {scope: "row"}, name), ...["p50", "p90", "p99", "max"].map((p) => make("td", {}, secondsText(latency[key][p]))))));
}

const kindNames = {weights: "Weights", kv_cache: "KV cache", arena: "Arena", workspace: "Workspace",
  static_inputs: "Static inputs", attention: "Attention's plans", communication: "Communication", graph_objects: "Graphs",
  adapters: "Adapters"};
function showMemory(memory) {
  const total = memory.reduce((sum, m) => sum + m.bytes, 0);
  setText(byId("memory-lead"), `${bytesText(total)} in all.`);
  const taken = memory.filter((m) => m.bytes);
  const list = byId("memory");
  if (list.childElementCount !== taken.length) list.replaceChildren(...taken.map(() => make("li", {}, make("span"), make("b"), make("i"))));
  taken.forEach((m, i) => {
    const [name, size, bar] = list.children[i].children;
    setText(name, kindNames[m.kind] || m.kind);
    size.replaceChildren(bytesText(m.bytes), make("small", {}, shareText(m.bytes, total)));
    bar.style.setProperty("--share", m.bytes / total);
  });
}

function showNotes(state) {
  const notes = [...state.notes, ...[state.prefill, state.decode, state.vision].filter(Boolean).flatMap((runner) =>
    runner.dropped.map((d) => `Size ${d.size} was not captured: ${d.why}`))];
  byId("notes-card").hidden = !notes.length;
  if (byId("notes").childElementCount !== notes.length) byId("notes").replaceChildren(...notes.map((n) => make("li", {}, n)));
}

function showState(state) {
  engine.state = state;
  showModel(state);
  remember(state);
  if (byId("engine").hidden) return;
  showTiles(state);
  showPicture(state);
  ladders.prefill.show(state.prefill);
  ladders.decode.show(state.decode);
  if (state.vision) {
    if (!ladders.vision.node.isConnected) byId("ladders").append(ladders.vision.node);
    ladders.vision.show(state.vision);
  }
  showReasons(state);
  showLatency(state.latency);
  showMemory(state.memory);
  showNotes(state);
}

function setConnection(text, kind) {
  byId("engine-state").className = `state ${kind}`;
  setText(byId("engine-state"), text);
}

const engineWatched = () => document.visibilityState === "visible" && (!byId("engine").hidden || chat.running != null);

// Polls the state. `once`: polls even if the view is hidden, because an answer has begun or ended.
async function poll(once = false) {
  clearTimeout(engine.timer);
  engine.again ||= once === true;
  if (engine.asking || !(engine.again || engineWatched())) return;
  engine.asking = true;
  engine.again = false;
  try {
    showState(await getJson("/engine_state"));
    setConnection("live", "live");
  } catch (error) {
    setConnection(error.status === 401 ? "needs the API key" : "no answer", "lost");
  }
  engine.asking = false;
  if (engine.again) poll();
  else engine.timer = setTimeout(poll, 1000);
}

function startEngine() {
  makeTiles();
  byId("ladders").append(ladders.prefill.node, ladders.decode.node, ladders.vision.node);
  document.addEventListener("visibilitychange", () => poll());
  new ResizeObserver(() => { if (engine.state) showPicture(engine.state); }).observe(byId("picture"));
}
