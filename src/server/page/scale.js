// Axes from 0 up: where they end, and what stands beyond.
const kBeyond = 4;  // times the usual: more is beyond the axis

const kRound = [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10];  // their halves are short numbers too

// The next number of these times a power of ten.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * kRound.find((step) => step * power >= value * (1 - 1e-9));
}

// The end of an axis for `values`. A few that are far greater than the others would flatten them all, so the axis ends above
// the greatest that is at most kBeyond times the usual one (the quantile `usual` of those above 0). What is greater is drawn
// broken, with its value beside it.
function axisTop(values, usual = 0.8) {
  const positive = values.filter((v) => v > 0).sort((a, b) => a - b);
  if (!positive.length) return 1;
  const typical = positive[Math.floor(usual * (positive.length - 1))];
  const within = positive.findLast((v) => v <= kBeyond * typical);
  return roundUp(within === positive.at(-1) ? within : 1.25 * within);
}

// A number on an axis: short, and never in exponent form.
function axisText(value) {
  if (value === 0) return "0";
  return value >= 10 ? countText(Math.round(value)) : String(Number(value.toPrecision(3)));
}

// Texts on one line that do not run into each other; those that are asked for first come first.
class LabelRow {
  constructor(left, right) {
    Object.assign(this, {left, right, taken: []});
  }
  // The middle for a text around `x`, null where there is no room.
  place(x, text) {
    const half = text.length * 3.4 + 3;
    const middle = Math.min(this.right - half, Math.max(this.left + half, x));
    if (this.taken.some(([from, to]) => middle - half < to && middle + half > from)) return null;
    this.taken.push([middle - half, middle + half]);
    return middle;
  }
}
