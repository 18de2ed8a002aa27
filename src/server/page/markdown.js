// The safe basics of Markdown as elements: fenced code, headings, lists, quotes, bold, italic, code. All else stays as it
// is written; links are not made, as a model's addresses are not to be trusted.
function inlineMarkdown(text) {
  const nodes = [];
  const pattern = /(`{1,3})(.+?)\1(?!`)|\*\*(?=\S)(.+?)\*\*|(?<![\w*])\*(?=\S)([^*\n]+?)\*(?![\w*])/gs;
  let end = 0;
  for (const found of text.matchAll(pattern)) {
    if (found.index > end) nodes.push(text.slice(end, found.index));
    if (found[2] != null) nodes.push(make("code", {}, found[2].trim() || found[2]));
    else if (found[3] != null) nodes.push(make("strong", {}, ...inlineMarkdown(found[3])));
    else nodes.push(make("em", {}, ...inlineMarkdown(found[4])));
    end = found.index + found[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

function copyButton(text, label) {
  const button = make("button", {class: "quiet", type: "button", "aria-label": label}, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

function codeBlock(language, code) {
  return make("div", {class: "block"},
    make("div", {class: "block-head"}, make("span", {}, language || "code"), copyButton(() => code, "Copy code")),
    make("pre", {tabindex: "0"}, make("code", {}, code)));
}

const listMark = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+/;

// Lines of a list from `at` on: indented lines go on with the item before them.
function readList(lines, at) {
  const ordered = listMark.exec(lines[at])[1];
  const items = [];
  let i = at;
  for (; i < lines.length && lines[i].trim(); ++i) {
    const mark = listMark.exec(lines[i]);
    if (mark && (mark[1] != null) !== (ordered != null)) break;
    if (mark) items.push(lines[i].slice(mark[0].length));
    else items[items.length - 1] += `\n${lines[i].trim()}`;
  }
  const list = make(ordered != null ? "ol" : "ul", ordered > 1 ? {start: ordered} : {},
    ...items.map((item) => make("li", {}, ...inlineMarkdown(item))));
  return [list, i];
}

function markdown(text) {
  const lines = text.split("\n");
  const blocks = [];
  let paragraph = [];
  const endParagraph = () => {
    if (paragraph.length) blocks.push(make("p", {}, ...inlineMarkdown(paragraph.join("\n"))));
    paragraph = [];
  };
  for (let i = 0; i < lines.length;) {
    const fence = /^\s*(```+|~~~+)\s*([^\s`]*)/.exec(lines[i]);
    const heading = /^#{1,6}\s+(.+?)\s*#*$/.exec(lines[i]);
    if (fence) {
      endParagraph();
      const code = [];
      for (++i; i < lines.length && !lines[i].trim().startsWith(fence[1]); ++i) code.push(lines[i]);
      ++i;
      blocks.push(codeBlock(fence[2], code.join("\n")));
    } else if (heading) {
      endParagraph();
      blocks.push(make("h4", {}, ...inlineMarkdown(heading[1])));
      ++i;
    } else if (listMark.test(lines[i])) {
      endParagraph();
      const [list, next] = readList(lines, i);
      blocks.push(list);
      i = next;
    } else if (lines[i].startsWith(">")) {
      endParagraph();
      const quote = [];
      for (; i < lines.length && lines[i].startsWith(">"); ++i) quote.push(lines[i].replace(/^>\s?/, ""));
      blocks.push(make("blockquote", {}, ...inlineMarkdown(quote.join("\n"))));
    } else {
      if (lines[i].trim()) paragraph.push(lines[i]);
      else endParagraph();
      ++i;
    }
  }
  endParagraph();
  return blocks;
}
