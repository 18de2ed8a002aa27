// Helpers to build elements. Elements are never parsed from HTML: text of the model or the server only becomes text
// nodes.
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

// Sets an element's text if it differs. Writing the same text again would restart screen readers and clear selections.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Icons as lines in a 24 × 24 square, by the names that iconButton() takes.
const iconPaths = {
  copy: "M9 9h10v10H9zM15 9V5H5v10h4",
  again: "M19 12a7 7 0 1 1-2-4.9M19 4v4h-4",
  edit: "M5 19h3.5L19 8.5 15.5 5 5 15.5zM13 7.5l3.5 3.5",
  remove: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12",
  chances: "M5 19v-5M10 19V9M15 19v-8M20 19V5",
};

// Makes a button without visible text; `label` is its accessible name and its tooltip.
function iconButton(icon, label, onclick) {
  return make("button", {class: "icon small", type: "button", "aria-label": label, title: label, onclick},
    draw("svg", {viewBox: "0 0 24 24", "aria-hidden": "true"}, draw("path", {d: iconPaths[icon]})));
}
