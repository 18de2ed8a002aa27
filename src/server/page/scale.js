// Axes that start at 0: chooses their ends, and shows values beyond them.
const kBeyond = 4;  // a value of more than this many times the usual one is beyond the axis

const kRound = [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10];  // half of each has few digits too

// Returns the next number of kRound times a power of ten.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * kRound.find((step) => step * power >= value * (1 - 1e-9));
}

// Returns the upper end of an axis for `values`. A few far greater values would flatten all others, so the axis ends
// above the greatest value that is at most kBeyond times the usual one. The usual value is the quantile `usual` of the
// positive values. Greater values are drawn broken, with the number beside them.
function axisTop(values, usual = 0.8) {
  const positive = values.filter((v) => v > 0).sort((a, b) => a - b);
  if (!positive.length) return 1;
  const typical = positive[Math.floor(usual * (positive.length - 1))];
  const within = positive.findLast((v) => v <= kBeyond * typical);
  return roundUp(within === positive.at(-1) ? within : 1.25 * within);
}

// Returns a number for an axis: short, and never in exponent form.
function axisText(value) {
  if (value === 0) return "0";
  return value >= 10 ? countText(Math.round(value)) : String(Number(value.toPrecision(3)));
}

// Places texts on one line without overlaps. Texts placed earlier keep their room.
class LabelRow {
  constructor(left, right) {
    Object.assign(this, {left, right, taken: []});
  }
  // Returns the middle for a text near `x`; null if there is no room.
  place(x, text) {
    const half = text.length * 3.4 + 3;
    const middle = Math.min(this.right - half, Math.max(this.left + half, x));
    if (this.taken.some(([from, to]) => middle - half < to && middle + half > from)) return null;
    this.taken.push([middle - half, middle + half]);
    return middle;
  }
}
