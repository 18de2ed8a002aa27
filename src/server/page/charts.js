// Small drawings that are made again from their data whenever it, or the room for them, changes.

// `series`: [{t, y}] with t in seconds, ascending; drawn over [now - span, now], from 0 to `top` or the greatest value.
function sparkline(svg, now, span, series, second, top) {
  const width = 200, height = 44;
  const all = second ? series.concat(second) : series;
  const scale = top || Math.max(1e-9, ...all.map((p) => p.y));
  const path = (points) => points.map((p, i) => {
    const x = width * (1 - (now - p.t) / span);
    const y = height - 2 - (height - 6) * Math.min(1, p.y / scale);
    return `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
  const line = path(series);
  const first = series.length ? width * (1 - (now - series[0].t) / span) : width;
  svg.replaceChildren(
    draw("path", {class: "spark-area", d: line && `${line}L${width} ${height}L${first.toFixed(1)} ${height}Z`}),
    ...(second ? [draw("path", {class: "spark-second", d: path(second)})] : []),
    draw("path", {class: "spark-line", d: line}));
}

// Bars over the captured sizes of a runner. Pointer and arrow keys choose the one that is told of.
class LadderChart {
  constructor(title, unit) {
    this.unit = unit;
    this.chosen = -1;
    this.total = make("span");
    this.svg = draw("svg", {height: 124, tabindex: "0", role: "img", "aria-label": title});
    this.read = make("p", {class: "read"});
    this.node = make("div", {class: "ladder"}, make("h4", {}, title, this.total), this.svg, this.read);
    this.sizes = [];
    this.svg.addEventListener("pointermove", (event) => this.choose(this.at(event)));
    this.svg.addEventListener("pointerdown", (event) => this.choose(this.at(event)));
    this.svg.addEventListener("pointerleave", () => this.choose(-1));
    this.svg.addEventListener("blur", () => { this.read.removeAttribute("aria-live"); this.choose(-1); });
    this.svg.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[event.key];
      if (!step) return;
      event.preventDefault();
      this.read.setAttribute("aria-live", "polite");
      this.choose(Math.max(0, Math.min(this.sizes.length - 1, this.chosen + step)));
    });
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  at(event) {
    const box = this.svg.getBoundingClientRect();
    return Math.max(0, Math.min(this.sizes.length - 1, Math.floor((event.clientX - box.left) / box.width * this.sizes.length)));
  }
  choose(index) {
    if (index === this.chosen) return;
    this.chosen = index;
    this.draw();
  }
  show(runner) {
    this.sizes = runner.sizes;
    this.toCome = runner.to_come.length;
    this.why = !runner.enabled ? "off: these forwards run eagerly"
      : this.toCome ? "no size is captured yet" : "no size was captured";
    this.draw();
  }

  // Of rows computed at a size, those for nothing.
  static padding(s) { return s.count ? Math.min(1, s.padded / (s.count * s.size)) : 0; }

  told(s) {
    const times = `${countText(s.count)} replay${s.count === 1 ? "" : "s"}`;
    return s.count ? `${s.size} ${this.unit}: ${times}, ${shareText(LadderChart.padding(s), 1)} padding`
      : `${s.size} ${this.unit}: captured, not used yet`;
  }

  draw() {
    const sizes = this.sizes;
    const width = this.svg.clientWidth;
    if (!width) return;
    const replays = sizes.reduce((sum, s) => sum + s.count, 0);
    const used = sizes.filter((s) => s.count).length;
    setText(this.total, sizes.length ? `${countText(replays)} replays` : "");
    const summary = sizes.length ? `${used} of ${sizes.length} sizes used so far${this.toCome ? `, ${this.toCome} yet to be captured` : ""}` : this.why;
    setText(this.read, this.chosen >= 0 && sizes[this.chosen] ? this.told(sizes[this.chosen]) : summary);
    this.svg.setAttribute("aria-label", `${replays} replays; ${summary}. Arrow keys go through the sizes.`);
    this.svg.setAttribute("viewBox", `0 0 ${width} 124`);
    const most = Math.max(1, ...sizes.map((s) => s.count));
    const slot = width / Math.max(1, sizes.length);
    const bar = Math.min(36, Math.max(1.5, slot - (slot > 7 ? 3 : 1)));
    const floor = 102, room = 94;
    const shapes = [];
    let free = 0;  // where the next label may begin
    sizes.forEach((s, i) => {
      const x = i * slot + (slot - bar) / 2;
      if (i === this.chosen) shapes.push(draw("rect", {class: "chosen", x: i * slot, y: 0, width: slot, height: floor + 2, rx: Math.min(4, slot / 3)}));
      shapes.push(draw("rect", {class: "rest", x, y: floor, width: bar, height: 2, rx: 1}));
      if (s.count) {
        const height = Math.max(3, room * s.count / most);
        const padded = height * LadderChart.padding(s);
        const radius = Math.min(3, bar / 3, height / 2);
        shapes.push(draw("rect", {class: "pad", x, y: floor - height, width: bar, height, rx: radius}));
        if (height - padded > 0.5) shapes.push(draw("rect", {class: "hit", x, y: floor - height + padded, width: bar, height: height - padded, rx: radius}));
      }
      const label = String(s.size), wide = label.length * 6.6;
      const middle = Math.min(width - wide / 2, Math.max(wide / 2, (i + 0.5) * slot));
      const last = i === sizes.length - 1;
      const lastBegins = width - String(sizes.at(-1).size).length * 6.6 - 10;
      if (middle - wide / 2 >= free && (last || middle + wide / 2 < lastBegins)) {
        shapes.push(draw("text", {x: middle, y: 119, "text-anchor": "middle"}, label));
        free = middle + wide / 2 + 12;
      }
    });
    this.svg.replaceChildren(...shapes);
  }
}
