// A bar chart of the sizes for which a runner has captured graphs: how often each size was replayed, and the share of
// padding in its rows. The pointer and the arrow keys select the bar whose values are shown.
const kLadder = {left: 46, top: 22, floor: 128, height: 162};

class LadderChart {
  constructor(title, unit) {
    this.unit = unit;
    this.chosen = -1;
    this.total = make("span");
    this.svg = draw("svg", {height: kLadder.height, tabindex: "0", role: "img", "aria-label": title});
    this.read = make("p", {class: "read"});
    this.node = make("div", {class: "ladder chart"}, make("h4", {}, title, this.total), this.svg, this.read);
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
    const share = (event.clientX - box.left - kLadder.left) / (box.width - kLadder.left);
    return Math.max(0, Math.min(this.sizes.length - 1, Math.floor(share * this.sizes.length)));
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

  // Returns the share of padding in all rows computed at a size.
  static padding(s) { return s.count ? Math.min(1, s.padded / (s.count * s.size)) : 0; }

  told(s) {
    const times = `${countText(s.count)} replay${s.count === 1 ? "" : "s"}`;
    const size = `${s.size} ${s.size === 1 ? this.unit.slice(0, -1) : this.unit}`;
    return s.count ? `${size}: ${times}, ${shareText(LadderChart.padding(s), 1)} padding` : `${size}: captured, not used yet`;
  }

  draw() {
    const {sizes} = this;
    const width = this.svg.clientWidth;
    if (!width) return;
    const replays = sizes.reduce((sum, s) => sum + s.count, 0);
    const used = sizes.filter((s) => s.count).length;
    setText(this.total, sizes.length ? `${countText(replays)} replay${replays === 1 ? "" : "s"}` : "");
    const summary = sizes.length ? `${used} of ${sizes.length} sizes used so far${this.toCome ? `, ${this.toCome} yet to be captured` : ""}` : this.why;
    setText(this.read, this.chosen >= 0 && sizes[this.chosen] ? this.told(sizes[this.chosen]) : summary);
    this.svg.setAttribute("aria-label", `${replays} replays; ${summary}. Arrow keys go through the sizes.`);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${kLadder.height}`);
    this.svg.replaceChildren(...(sizes.length ? [...this.axes(width), ...this.bars(width), ...this.sizeLabels(width)] : []));
  }

  axes(width) {
    const {left, top, floor, height} = kLadder;
    this.top = axisTop(this.sizes.map((s) => s.count));
    const whole = this.top < 2 ? [0, 1] : [0, 0.5, 1];
    return [draw("text", {x: 0, y: 9}, "replays"), draw("text", {x: width, y: height - 2, "text-anchor": "end"}, `captured size, ${this.unit}`),
      ...whole.flatMap((share) => {
        const y = floor - (floor - top) * share;
        return [draw("path", {class: "grid", d: `M${left} ${y}H${width}`}), draw("text", {x: left - 7, y: y + 4, "text-anchor": "end"}, axisText(this.top * share))];
      })];
  }

  slotOf(width) { return (width - kLadder.left) / this.sizes.length; }

  bars(width) {
    const {left, top, floor} = kLadder;
    const slot = this.slotOf(width);
    const bar = Math.min(36, Math.max(1.5, slot - (slot > 7 ? 3 : 1)));
    const shapes = [], beyond = [];
    this.sizes.forEach((s, i) => {
      const x = left + i * slot + (slot - bar) / 2;
      if (i === this.chosen) shapes.push(draw("rect", {class: "chosen", x: left + i * slot, y: top, width: slot, height: floor - top + 2, rx: Math.min(4, slot / 3)}));
      shapes.push(draw("rect", {class: "rest", x, y: floor, width: bar, height: 2, rx: 1}));
      if (!s.count) return;
      const height = Math.max(3, (floor - top) * Math.min(1, s.count / this.top));
      const padded = height * LadderChart.padding(s);
      const radius = Math.min(3, bar / 3, height / 2);
      shapes.push(draw("rect", {class: "pad", x, y: floor - height, width: bar, height, rx: radius}));
      if (height - padded > 0.5) shapes.push(draw("rect", {class: "hit", x, y: floor - height + padded, width: bar, height: height - padded, rx: radius}));
      if (s.count > this.top) {
        shapes.push(draw("path", {class: "gap", d: `M${x - 2} ${top + 14}l${bar + 4} -6v5l${-bar - 4} 6z`}));
        beyond.push({count: s.count, x: x + bar / 2});
      }
    });
    const labels = new LabelRow(left, width);
    for (const {count, x} of beyond.sort((a, b) => b.count - a.count)) {
      const middle = labels.place(x, countText(count));
      if (middle != null) shapes.push(draw("text", {class: "beyond", x: middle, y: top - 6, "text-anchor": "middle"}, countText(count)));
    }
    return shapes;
  }

  // Labels as many sizes as there is room for, always including the first and the last.
  sizeLabels(width) {
    const labels = new LabelRow(kLadder.left - 6, width);
    const slot = this.slotOf(width);
    const order = [0, this.sizes.length - 1, ...this.sizes.keys()];
    return [...new Set(order)].flatMap((i) => {
      const text = String(this.sizes[i].size);
      const middle = labels.place(kLadder.left + (i + 0.5) * slot, text);
      return middle == null ? [] : [draw("text", {x: middle, y: kLadder.floor + 17, "text-anchor": "middle"}, text)];
    });
  }
}
