// Reads Markdown into blocks, line by line: fenced code, headings, lists, quotes, tables, rules, formulas, paragraphs.
// A block is {kind, source} plus the fields of its kind; `source` is its lines.
const kMaxNesting = 6;  // depth of nested lists and quotes; deeper ones stay text
const kMaxMathsLines = 100;  // lines of a formula in a block of its own
const listMark = /^(\s*)(?:[-*+]|(\d{1,9})[.)])(?:\s+|$)/;
const fenceMark = /^\s*(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const ruleMark = /^\s{0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const headingMark = /^\s{0,3}(#{1,6})\s+(\S.*)$/;
const tableMark = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const quoteMark = /^\s{0,3}>\s?/;
const indentOf = (line) => line.length - line.trimStart().length;

// Readers of blocks. Each takes the lines and a start position. It returns [block, the line after], or null.
const blockReaders = [readFence, readMaths, readHeading, readRule, readTable, readQuote, readList];

function readBlocks(text, depth = 0) {
  const lines = text.split("\n");
  const blocks = [];
  let paragraph = [];
  const endParagraph = () => {
    if (paragraph.length) blocks.push({kind: "paragraph", source: paragraph.join("\n")});
    paragraph = [];
  };
  for (let i = 0; i < lines.length;) {
    let found = null;
    for (const reader of lines[i].trim() ? blockReaders : []) {
      if ((found = reader(lines, i, depth))) break;
    }
    if (found) {
      endParagraph();
      const [block, next] = found;
      blocks.push({...block, source: lines.slice(i, next).join("\n")});
      i = next;
    } else {
      if (lines[i].trim()) paragraph.push(lines[i]);
      else endParagraph();
      ++i;
    }
  }
  endParagraph();
  return blocks;
}

function readFence(lines, at) {
  const fence = fenceMark.exec(lines[at]);
  if (!fence) return null;
  const indent = indentOf(lines[at]);
  const code = [];
  let i = at + 1;
  for (; i < lines.length; ++i) {
    const line = lines[i].trim();
    if (line.startsWith(fence[1]) && line === fence[1][0].repeat(line.length)) break;
    code.push(lines[i].slice(Math.min(indent, indentOf(lines[i]))));
  }
  return [{kind: "code", language: fence[2], code: code.join("\n")}, Math.min(i + 1, lines.length)];
}

// Reads \[ … \] or $$ … $$ over several lines. Formulas inside one line belong to the paragraph.
function readMaths(lines, at) {
  const begin = lines[at].trim();
  const end = begin.startsWith("\\[") ? "\\]" : begin.startsWith("$$") ? "$$" : null;
  if (!end) return null;
  for (let i = at; i < Math.min(lines.length, at + kMaxMathsLines) && lines[i].trim(); ++i) {
    const line = lines[i].trim();
    if (i === at ? line.length > 2 && line.indexOf(end, 2) === line.length - 2 : line.endsWith(end)) {
      return [{kind: "maths"}, i + 1];
    }
    if (i === at && line.indexOf(end, 2) > 0) return null;
  }
  return null;
}

function readHeading(lines, at) {
  const found = headingMark.exec(lines[at]);
  return found && [{kind: "heading", level: found[1].length, text: found[2].trimEnd().replace(/\s+#+$/, "")}, at + 1];
}

function readRule(lines, at) {
  return ruleMark.test(lines[at]) ? [{kind: "rule"}, at + 1] : null;
}

// Splits a row into cells at its bars. Bars after a backslash or inside code do not count.
function cellsOf(line) {
  const cells = [];
  let cell = "", inCode = false;
  const row = line.trim().replace(/^\|/, "");
  for (let i = 0; i < row.length; ++i) {
    if (row[i] === "\\" && row[i + 1] === "|") cell += row[++i];
    else if (row[i] === "|" && !inCode) {
      cells.push(cell.trim());
      cell = "";
    } else {
      if (row[i] === "`") inCode = !inCode && row.indexOf("`", i + 1) > 0;
      cell += row[i];
    }
  }
  if (cell.trim()) cells.push(cell.trim());
  return cells;
}

function readTable(lines, at) {
  if (!lines[at].includes("|") || at + 1 >= lines.length || !lines[at + 1].includes("-") || !tableMark.test(lines[at + 1])) return null;
  const head = cellsOf(lines[at]);
  const marks = cellsOf(lines[at + 1]);
  if (head.length !== marks.length) return null;
  const align = marks.map((m) => m.endsWith(":") ? m.startsWith(":") ? "middle" : "right" : "left");
  const rows = [];
  let i = at + 2;
  for (; i < lines.length && lines[i].includes("|"); ++i) {
    const cells = cellsOf(lines[i]);
    rows.push(head.map((_, column) => cells[column] ?? ""));
  }
  return [{kind: "table", head, align, rows}, i];
}

function readQuote(lines, at, depth) {
  if (depth >= kMaxNesting || !quoteMark.test(lines[at])) return null;
  const inside = [];
  let i = at;
  for (; i < lines.length && quoteMark.test(lines[i]); ++i) inside.push(lines[i].replace(quoteMark, ""));
  return [{kind: "quote", blocks: readBlocks(inside.join("\n"), depth + 1)}, i];
}

// Reads a list. Lines indented as far as an item's text belong to the item, and so does a line directly after it that
// begins no other block.
function readList(lines, at, depth) {
  const first = depth < kMaxNesting && listMark.exec(lines[at]);
  if (!first) return null;
  const ordered = first[2] != null;
  const items = [];
  let inset = 0, i = at;
  for (; i < lines.length; ++i) {
    const line = lines[i];
    const mark = listMark.exec(line);
    if (!line.trim()) {
      let next = i + 1;
      while (next < lines.length && !lines[next].trim()) ++next;
      const goesOn = next < lines.length && (indentOf(lines[next]) >= inset || isItemOf(lines[next], ordered, first[1].length));
      if (!goesOn) break;
      items.at(-1).push("");
    } else if (items.length && indentOf(line) >= inset) {
      items.at(-1).push(line.slice(inset));
    } else if (mark && (mark[2] != null) === ordered && !ruleMark.test(line)) {
      items.push([line.slice(mark[0].length)]);
      inset = Math.max(mark[1].length + 2, Math.min(mark[0].length, mark[1].length + 5));
    } else if (mark || lines[i - 1]?.trim() === "" || [readFence, readHeading, readRule, readQuote].some((reader) => reader(lines, i, depth))) {
      break;
    } else {
      items.at(-1).push(line.trim());
    }
  }
  return [{kind: "list", ordered, start: ordered ? Number(first[2]) : 1, items: items.map((item) => readBlocks(item.join("\n"), depth + 1))}, i];
}

function isItemOf(line, ordered, indent) {
  const mark = listMark.exec(line);
  return mark != null && (mark[2] != null) === ordered && indentOf(line) >= indent && !ruleMark.test(line);
}
