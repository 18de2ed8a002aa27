// Turns Markdown blocks into elements. A model's text is never parsed as HTML.
const blockMakers = {
  paragraph: ({source}) => make("p", {}, ...inlineMarkdown(source)),
  heading: ({level, text}) => make(`h${Math.min(6, level + 2)}`, {class: `depth${Math.min(4, level)}`}, ...inlineMarkdown(text)),
  rule: () => make("hr"),
  quote: ({blocks}) => make("blockquote", {}, ...blocks.map(makeBlock)),
  maths: ({source}) => make("div", {class: "maths", tabindex: "0", role: "region", "aria-label": "Formula"}, source.trim()),
  code: ({language, code}) => codeBlock(language, code),
  list: ({ordered, start, items}) => make(ordered ? "ol" : "ul", start !== 1 ? {start} : {}, ...items.map((blocks) => make("li", {}, ...itemNodes(blocks)))),
  table: ({head, align, rows}) => make("div", {class: "table", tabindex: "0", role: "region", "aria-label": "Table"}, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((cell, i) => make("th", {scope: "col", class: align[i]}, ...inlineMarkdown(cell))))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, i) => make("td", {class: align[i]}, ...inlineMarkdown(cell)))))))),
};
const makeBlock = (block) => blockMakers[block.kind](block);

// Puts the first paragraph of a list item beside its bullet.
function itemNodes([first, ...others]) {
  if (!first) return [];
  return [...(first.kind === "paragraph" ? inlineMarkdown(first.source) : [makeBlock(first)]), ...others.map(makeBlock)];
}

const markdown = (text) => readBlocks(text).map(makeBlock);

// Makes `host` show `text`. Keeps blocks with unchanged source, so selection and focus inside them survive.
function drawMarkdown(host, text) {
  const blocks = readBlocks(text);
  host.sources ??= [];
  blocks.forEach((block, i) => {
    if (host.sources[i] === block.kind + block.source) return;
    host.sources[i] = block.kind + block.source;
    if (host.children[i]) host.children[i].replaceWith(makeBlock(block));
    else host.append(makeBlock(block));
  });
  host.sources.length = blocks.length;
  while (host.children.length > blocks.length) host.lastChild.remove();
}

function codeBlock(language, code) {
  return make("div", {class: "block"},
    make("div", {class: "block-head"}, make("span", {}, language || "code"), copyButton(() => code, "Copy code")),
    make("pre", {tabindex: "0", "aria-label": `Code${language ? ` in ${language}` : ""}`, role: "region"}, make("code", {}, ...highlighted(code, language))));
}

function copyButton(text, label) {
  const button = make("button", {class: "quiet", type: "button", "aria-label": label}, "Copy");
  button.addEventListener("click", async () => {
    setText(button, await copied(text()) ? "Copied" : "Not allowed");
    setTimeout(() => setText(button, "Copy"), 1500);
  });
  return button;
}

// Copies text to the clipboard. Returns false if the browser refuses, as it does for pages that were loaded without TLS
// from another machine.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
