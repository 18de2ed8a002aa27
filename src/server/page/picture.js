// Draws a forward pass, whose parts are pieces and split ops: first a strip of all parts, then each part with its
// operators. Repeated parts are drawn once, in a frame with the number of repeats.
const charWidth = 7.3;  // width of a 12 px monospaced letter

function opLines({ops, num_ops: count}) {
  const more = count - ops.length;
  const lines = [];
  for (const op of ops) {
    if (lines.length && lines.at(-1).op === op) ++lines.at(-1).times;
    else lines.push({op, times: 1});
  }
  return lines.map(({op, times}) => times > 1 ? `${op} ×${times}` : op).concat(more > 0 ? [`… ${countText(more)} more`] : []);
}

// Breaks words into lines of at most `room` pixels.
function wrapped(words, room) {
  const lines = [];
  for (const word of words) {
    const joined = lines.length ? `${lines.at(-1)} · ${word}` : word;
    if (lines.length && joined.length * charWidth <= room) lines[lines.length - 1] = joined;
    else lines.push(word);
  }
  return lines;
}

function partTile(part, x, y, width, height, lines) {
  const split = part.kind === "split_op";
  const head = split ? "split op" : "piece";
  const given = part.outputs.map((v) => `${v.name}: ${v.type}`).join("\n");
  return draw("g", {class: part.kind},
    draw("title", {}, given ? `${part.name}\nhands on\n${given}` : `${part.name}\nwrites where it is told to`),
    draw("rect", {x, y, width, height, rx: 10}),
    draw("text", {class: "head", x: x + 14, y: y + 24}, head),
    ...lines.map((line, i) => draw("text", {class: "op", x: x + 14, y: y + 45 + 18 * i}, line)));
}
const tileHeight = (lines) => 45 + 18 * lines.length;

function badge(text, x, y) {
  const width = text.length * 6.9 + 20;
  return draw("g", {class: "badge"}, draw("rect", {x: x - width / 2, y: y - 11, width, height: 22, rx: 11}),
    draw("text", {x, y: y + 4.5, "text-anchor": "middle"}, text));
}

function strip(runner, y, width, whole) {
  const parts = whole ? [{kind: "piece", weight: 1}] : runner.groups.flatMap((group) =>
    Array.from({length: group.repeats}, () => group.parts.map((p) => ({kind: p.kind, weight: p.kind === "piece" ? 3 : 1.4}))).flat());
  const total = parts.reduce((sum, p) => sum + p.weight, 0);
  const gap = Math.min(3, width / parts.length / 4);
  let x = 0;
  return parts.map((p) => {
    const room = (width + gap) * p.weight / total;
    const split = p.kind === "split_op";  // a split op is drawn with less height than a piece
    const tile = draw("rect", {class: `mini-${p.kind}`, x, y: y + (split ? 5 : 0), width: Math.max(0.8, room - gap), height: split ? 8 : 18, rx: Math.min(4, room / 4)});
    x += room;
    return tile;
  });
}

function stripLabel(name, runner) {
  const {pieces, split_ops: splits} = runner;
  const plural = (n, word) => `${countText(n)} ${word}${n === 1 ? "" : "s"}`;
  const how = splits ? `${plural(pieces, "piece")}, ${plural(splits, "split op")}` : `one graph of ${plural(runner.ops, "operator")}`;
  return `${name}: ${how}${runner.enabled ? "" : ", run eagerly"}`;
}

function drawRow(groups, top, width, placed) {
  const sized = groups.map((group) => ({...group, parts: group.parts.map((part) => {
    const lines = opLines(part);
    return {part, lines, width: Math.max(96, ...lines.map((l) => l.length * charWidth + 28)), height: tileHeight(lines)};
  })}));
  const gap = 26, pad = 16;
  const needed = sized.reduce((sum, g) => sum + (g.repeats > 1 ? 2 * pad : 0) + g.parts.reduce((s, p) => s + p.width + gap, 0), -gap);
  if (needed > width) return null;
  const tallest = Math.max(...sized.flatMap((g) => g.parts.map((p) => p.height)));
  const middle = top + pad + 12 + tallest / 2;
  let x = (width - needed) / 2;
  let end = null;  // right end of the previous part
  for (const group of sized) {
    const begin = x;
    if (group.repeats > 1) x += pad;
    for (const p of group.parts) {
      if (end != null) placed.push(arrow(end + 4, middle, x - 4, middle));
      placed.push(partTile(p.part, x, middle - p.height / 2, p.width, p.height, p.lines));
      end = x + p.width;
      x = end + gap;
    }
    if (group.repeats > 1) {
      const right = end + pad;
      placed.unshift(draw("rect", {class: "frame", x: begin, y: top + 12, width: right - begin, height: tallest + 2 * pad, rx: 16}));
      placed.push(badge(`× ${group.repeats}`, (begin + right) / 2, top + 12));
      end = right;
      x = right + gap;
    }
  }
  return top + 12 + tallest + 2 * pad + 2;
}

function drawColumn(groups, top, width, placed) {
  const gap = 20, pad = 12;
  let y = top + 12;
  let end = null;
  for (const group of groups) {
    const begin = y;
    const inset = group.repeats > 1 ? pad : 0;
    y += inset ? pad + 6 : 0;
    for (const part of group.parts) {
      const lines = wrapped(opLines(part), width - 2 * inset - 28);
      if (end != null) placed.push(arrow(width / 2, end + 3, width / 2, y - 3));
      placed.push(partTile(part, inset, y, width - 2 * inset, tileHeight(lines), lines));
      end = y + tileHeight(lines);
      y = end + gap;
    }
    if (inset) {
      end += pad;
      placed.unshift(draw("rect", {class: "frame", x: 1, y: begin, width: width - 2, height: end - begin, rx: 16}));
      placed.push(badge(`× ${group.repeats}`, width - 44, begin));
      y = end + gap;
    }
  }
  return end + 2;
}

function arrow(x1, y1, x2, y2) {
  const head = x1 === x2 ? `M${x2 - 4} ${y2 - 5}L${x2} ${y2}L${x2 + 4} ${y2 - 5}` : `M${x2 - 5} ${y2 - 4}L${x2} ${y2}L${x2 - 5} ${y2 + 4}`;
  return draw("path", {class: "arrow", d: `M${x1} ${y1}L${x2} ${y2}${head}`});
}

function drawPicture(host, state) {
  const width = host.clientWidth;
  if (!width) return;
  const {prefill, decode} = state;
  const shapes = [];
  let y = 0;
  for (const [name, runner] of [["Prefill", prefill], ["Decode", decode]]) {
    const mini = draw("g", runner.enabled ? {} : {class: "off"}, ...strip(runner, y + 24, width, !runner.split_ops));
    shapes.push(draw("text", {class: "quiet-text", x: 0, y: y + 14}, stripLabel(name, runner)), mini);
    y += 58;
  }
  const placed = [];
  const height = (width >= 560 && drawRow(prefill.groups, y, width, placed)) || drawColumn(prefill.groups, y, width, placed);
  host.replaceChildren(draw("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": `${stripLabel("Prefill", prefill)}. ${stripLabel("Decode", decode)}.`}, ...shapes, ...placed));
}
