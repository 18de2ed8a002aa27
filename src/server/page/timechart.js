// A line chart of the last minutes, with axes. The first line is solid and shaded, the second is dashed. The name and
// value of each line are shown below. The pointer and the arrow keys select the moment whose values are shown.
const kPlot = {left: 46, right: 10, top: 22, bottom: 20, height: 148};
const kGap_s = 5;  // a longer time without a sample is a gap in the line

const spanText = (s) => s < 90 ? `${Math.round(s)} s` : `${Math.round(s / 60)} min`;

class TimeChart {
  // `series`: [{key, name}], one or two; `unit`: the values' unit; `show`: formats a value; `most`: the upper bound of
  // the values, if there is one.
  constructor({title, unit, series, show, most = Infinity}) {
    Object.assign(this, {title, unit, series, text: show, most, points: [], at: null});
    this.svg = draw("svg", {height: kPlot.height, tabindex: "0", role: "img", "aria-label": title});
    this.values = series.map(() => make("b"));
    this.when = make("span", {class: "when"});
    const sample = (i) => draw("svg", {class: "sample", viewBox: "0 0 26 10", width: 26, height: 10, "aria-hidden": "true"},
      draw("path", {class: `line${i}`, d: "M1 5H25"}));
    this.keys = make("p", {class: "keys"}, ...series.map(({name}, i) => make("span", {}, sample(i), name, this.values[i])), this.when);
    this.node = make("div", {class: "chart"}, this.svg, this.keys);
    const move = (event) => this.choose(this.nearest(event));
    this.svg.addEventListener("pointermove", move);
    this.svg.addEventListener("pointerdown", move);
    this.svg.addEventListener("pointerleave", () => this.choose(null));
    this.svg.addEventListener("blur", () => { this.keys.removeAttribute("aria-live"); this.choose(null); });
    this.svg.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[event.key];
      if (!step || !this.points.length) return;
      event.preventDefault();
      this.keys.setAttribute("aria-live", "polite");
      const last = this.points.length - 1;
      const index = this.at == null ? last + 1 : this.points.findIndex((p) => p.t >= this.at);
      this.choose(this.points[Math.max(0, Math.min(last, index + step))].t);
    });
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // Draws the chart over [now - span, now]. `points`: [{t, …}] with ascending t in seconds.
  show(points, now, span) {
    Object.assign(this, {points, now, span});
    this.draw();
  }

  nearest(event) {
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - kPlot.left) / (box.width - kPlot.left - kPlot.right);
    const t = this.now - this.span * (1 - share);
    return this.points.reduce((best, p) => best == null || Math.abs(p.t - t) < Math.abs(best - t) ? p.t : best, null);
  }
  choose(t) {
    if (t === this.at) return;
    this.at = t;
    this.draw();
  }

  // Returns runs of samples without a time gap.
  runs(key) {
    const runs = [];
    let last = null;
    for (const p of this.points) {
      if (p[key] == null) continue;
      if (!last || p.t - last.t > kGap_s) runs.push([]);
      runs.at(-1).push(p);
      last = p;
    }
    return runs;
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!width || this.now == null) return;
    const {left, right, top: above, bottom, height} = kPlot;
    const floor = height - bottom, room = floor - above;
    const values = this.series.flatMap(({key}) => this.points.map((p) => p[key] ?? 0));
    const top = Math.min(this.most, axisTop(values, 0.9));
    const x = (t) => left + (width - left - right) * (1 - (this.now - t) / this.span);
    const y = (v) => floor - room * Math.min(1, v / top);
    const shapes = [];
    for (const share of [0, 0.5, 1]) {
      shapes.push(draw("path", {class: "grid", d: `M${left} ${y(share * top)}H${width - right}`}),
        draw("text", {x: left - 7, y: y(share * top) + 4, "text-anchor": "end"}, axisText(share * top * (this.unit.startsWith("%") ? 100 : 1))));
    }
    shapes.push(draw("text", {x: 0, y: 9}, this.unit), draw("text", {x: left, y: height - 4}, `${spanText(this.span)} ago`),
      draw("text", {x: width - right, y: height - 4, "text-anchor": "end"}, "now"));
    const labels = new LabelRow(left + this.unit.length * 2, width - right);
    this.series.forEach(({key}, i) => {
      for (const run of this.runs(key)) {
        const path = run.map((p, j) => `${j ? "L" : "M"}${x(p.t).toFixed(1)} ${y(p[key]).toFixed(1)}`).join("") + (run.length === 1 ? "h1" : "");
        if (i === 0) shapes.push(draw("path", {class: "shade", d: `${path}V${floor}H${x(run[0].t).toFixed(1)}Z`}));
        shapes.push(draw("path", {class: `line${i}`, d: path}));
      }
      shapes.push(...this.beyond(key, top, x, above, labels));
    });
    const point = this.points.find((p) => p.t === this.at);
    if (point) shapes.push(draw("path", {class: "cross", d: `M${x(point.t)} ${above}V${floor}`}));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...shapes);
    this.tell(point);
  }

  // Draws peaks beyond the axis: a mark at its end, and the value.
  beyond(key, top, x, above, labels) {
    const shapes = [];
    for (const run of this.runs(key)) {
      for (let i = 0; i < run.length; ++i) {
        if (run[i][key] <= top) continue;
        let peak = run[i];
        for (; i < run.length && run[i][key] > top; ++i) if (run[i][key] > peak[key]) peak = run[i];
        const at = x(peak.t);
        const middle = labels.place(at, this.text(peak[key]));
        shapes.push(draw("path", {class: "break", d: `M${at - 4} ${above - 2}l4 -5l4 5z`}));
        if (middle != null) shapes.push(draw("text", {class: "beyond", x: middle, y: above - 10, "text-anchor": "middle"}, this.text(peak[key])));
      }
    }
    return shapes;
  }

  tell(point) {
    const shown = point || this.points.at(-1);
    const valueOf = (key) => shown?.[key] == null ? "–" : this.text(shown[key]);
    this.series.forEach(({key}, i) => setText(this.values[i], valueOf(key)));
    setText(this.when, point ? `${spanText(this.now - point.t)} ago` : "");
    this.svg.setAttribute("aria-label", `${this.title}, the last ${spanText(this.span)}. Now: ` +
      `${this.series.map(({key, name}) => `${name} ${this.points.length ? valueOf(key) : "–"}`).join(", ")}. Arrow keys go through time.`);
  }
}
