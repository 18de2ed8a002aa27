// Elements are made, never parsed: text of the model or the server becomes text nodes and nothing else.
const byId = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}
const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Writing the same text again would make screen readers and selections start anew.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const wholeNumber = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
function countText(n) {
  if (n < 1e6) return wholeNumber.format(n).replaceAll(",", "\u202f");
  for (const [unit, size] of [["T", 1e12], ["B", 1e9], ["M", 1e6]]) {
    if (n >= size) return `${(n / size).toPrecision(3)} ${unit}`;
  }
}
function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** power;
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}`;
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
