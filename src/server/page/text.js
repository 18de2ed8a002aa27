// Formats numbers, bytes, times and shares for readers, never in exponent form.
const wholeNumber = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
// Formats a number with three digits, or with more if the integer part has more.
const threeDigits = (value) => value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
function countText(n) {
  for (const [unit, size] of [["T", 1e12], ["B", 1e9], ["M", 1e6]]) {
    if (n >= size) return `${threeDigits(n / size)} ${unit}`;
  }
  return wholeNumber.format(n).replaceAll(",", "\u202f");
}
function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** power;
  return `${threeDigits(value)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}`;
}
function secondsText(s) {
  if (s == null) return "–";
  if (s < 0.001) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 1) return `${(s * 1e3).toFixed(s < 0.01 ? 1 : 0)} ms`;
  return `${s.toFixed(s < 10 ? 2 : s < 100 ? 1 : 0)} s`;
}
function shareText(part, whole) {
  if (!whole) return "0\u202f%";
  const share = 100 * part / whole;
  return `${share === 0 || share === 100 ? share : share < 0.1 ? "<\u202f0.1" : share > 99.9 ? ">\u202f99.9" : share.toFixed(1)}\u202f%`;
}
// Formats a rate of tokens or forwards per second.
function rateText(perSecond) {
  return perSecond < 9.95 ? perSecond.toFixed(1) : countText(Math.round(perSecond));
}
