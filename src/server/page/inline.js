// Turns Markdown inside a line into nodes: code, bold, italic, strikethrough and links; formulas stay as written. Any
// text takes a bounded number of visits per character.
const kMaxDepth = 6;  // depth of nested marks; deeper ones stay text
const kSafeSchemes = ["http:", "https:", "mailto:"];
const linkPattern = /!?\[((?:[^\[\]\\]|\\.){0,500})\]\(\s*<?([^\s<>()]{1,2000}(?:\([^\s<>()]{0,500}\)[^\s<>()]{0,500})?)>?(?:\s+"[^"\n]{0,300}")?\s{0,9}\)/y;
const anglePattern = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const barePattern = /https?:\/\/[^\s<>"`]{1,2000}/y;
const specials = /[\\`$*_~[!<]|https?:\/\//g;

// Returns the address in the browser's normal form; null if its scheme is not safe.
function safeAddress(text) {
  try {
    const url = new URL(text);
    return kSafeSchemes.includes(url.protocol) ? url.href : null;
  } catch {
    return null;  // a relative address would point to this server
  }
}

// Makes a link. Its tooltip shows the real address, because the text of a link may claim another.
function link(address, ...children) {
  return make("a", {href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow"}, ...children);
}

const isBlank = (letter) => letter == null || /\s/.test(letter);
const isWord = (letter) => letter != null && /[\p{L}\p{N}_]/u.test(letter);

class InlineReader {
  constructor(text, depth, links) {
    Object.assign(this, {text, depth, links, nodes: [], plain: "", unclosed: new Set()});
  }

  read() {
    const {text} = this;
    let at = 0;
    while (at < text.length) {
      specials.lastIndex = at;
      const found = specials.exec(text);
      const next = found ? found.index : text.length;
      this.plain += text.slice(at, next);
      if (!found) break;
      const step = this.special(next);
      if (step) {
        at = step;
      } else {
        this.plain += text[next];
        at = next + 1;
      }
    }
    this.flush();
    return this.nodes;
  }

  flush() {
    if (this.plain) this.nodes.push(this.plain);
    this.plain = "";
  }
  // Adds the node. Returns the position after it.
  add(node, end) {
    this.flush();
    this.nodes.push(node);
    return end;
  }
  inner(from, to, links = this.links) {
    return inlineMarkdown(this.text.slice(from, to), this.depth + 1, links);
  }
  // Searches like indexOf, but does not repeat a search that failed from an earlier position.
  find(what, from) {
    if (this.unclosed.has(what)) return -1;
    const index = this.text.indexOf(what, from);
    if (index < 0) this.unclosed.add(what);
    return index;
  }

  // Reads the special syntax at `at`. Returns 0 if the text there is plain.
  special(at) {
    switch (this.text[at]) {
      case "\\": return this.escape(at);
      case "`": return this.code(at);
      case "$": return this.dollars(at);
      case "*": case "_": case "~": return this.emphasis(at);
      case "[": case "!": return this.link(at);
      case "<": return this.angle(at);
      default: return this.bare(at);
    }
  }

  escape(at) {
    const letter = this.text[at + 1];
    if (letter === "(" || letter === "[") {
      const end = this.find(letter === "(" ? "\\)" : "\\]", at + 2);
      if (end > 0) return this.add(maths(this.text.slice(at, end + 2)), end + 2);
    }
    if (letter == null || !/[!-/:-@[-`{-~]/.test(letter)) return 0;
    this.plain += letter;
    return at + 2;
  }

  code(at) {
    const {text} = this;
    let open = at;
    while (text[open] === "`") ++open;
    const ticks = text.slice(at, open);
    for (let end = this.find(ticks, open); end > 0; end = text.indexOf(ticks, end)) {
      let after = end;
      while (text[after] === "`") ++after;
      if (after - end === ticks.length) {
        const inside = text.slice(open, end);
        return this.add(make("code", {}, inside.trim() || inside), after);
      }
      end = after;
    }
    this.unclosed.add(ticks);
    this.plain += ticks;
    return open;
  }

  // Reads $…$ by Pandoc's rule, so that prices stay text: a formula neither begins nor ends with a space, and no digit
  // follows the closing dollar.
  dollars(at) {
    const {text} = this;
    if (text[at + 1] === "$") {
      const end = this.find("$$", at + 2);
      return end > at + 2 ? this.add(maths(text.slice(at, end + 2)), end + 2) : 0;
    }
    if (isBlank(text[at + 1])) return 0;
    for (let end = this.find("$", at + 1), tries = 0; end > 0 && tries < 4; end = text.indexOf("$", end + 1), ++tries) {
      if (text[end - 1] === "\\") continue;
      if (isBlank(text[end - 1]) || /\d/.test(text[end + 1] || "")) return 0;
      return this.add(maths(text.slice(at, end + 1)), end + 1);
    }
    return 0;
  }

  emphasis(at) {
    const {text} = this;
    const letter = text[at];
    const mark = text[at + 1] === letter ? letter + letter : letter;
    if (mark === "~" || this.depth >= kMaxDepth) return 0;
    const from = at + mark.length;
    if (isBlank(text[from])) return 0;
    if (mark !== "**" && mark !== "~~" && (isWord(text[at - 1]) || text[at - 1] === letter)) return 0;
    const end = this.closing(mark, from);
    if (end < 0) return 0;
    const tag = {"**": "strong", "__": "strong", "~~": "del"}[mark] || "em";
    return this.add(make(tag, {}, ...this.inner(from, end)), end + mark.length);
  }

  // Returns the position of the `mark` that closes the one just before `from`. Marks inside code do not count.
  closing(mark, from) {
    const {text} = this;
    if (this.unclosed.has(mark)) return -1;
    const single = mark.length === 1;
    let lastTick = false;
    for (let i = from; i < text.length; ++i) {
      if (text[i] === "\\") ++i;
      else if (text[i] === "`" && !lastTick) {
        const end = text.indexOf("`", i + 1);
        if (end > 0) i = end;
        else lastTick = true;
      } else if (text.startsWith(mark, i)) {
        const after = text[i + mark.length];
        const doubled = single && (after === mark || text[i - 1] === mark);
        if (i > from && !doubled && !isBlank(text[i - 1]) && !((single || mark === "__") && isWord(after))) {
          return after === mark[0] && !single ? i + 1 : i;  // *** closes the inner mark first
        }
        if (doubled) while (text[i + 1] === mark) ++i;
      }
    }
    this.unclosed.add(mark);
    return -1;
  }

  link(at) {
    if (!this.links || (this.text[at] === "!" && this.text[at + 1] !== "[")) return 0;
    linkPattern.lastIndex = at;
    const found = linkPattern.exec(this.text);
    const address = found && safeAddress(found[2]);
    if (!address) return 0;
    const begin = at + (this.text[at] === "!" ? 2 : 1);
    const words = found[1] ? this.inner(begin, begin + found[1].length, false) : [address];
    return this.add(link(address, ...(this.text[at] === "!" ? ["Picture: "] : []), ...words), at + found[0].length);
  }

  angle(at) {
    if (/^<br\s{0,3}\/?>/i.test(this.text.slice(at, at + 8))) return this.add(make("br"), this.text.indexOf(">", at) + 1);
    anglePattern.lastIndex = at;
    const found = this.links && anglePattern.exec(this.text);
    const address = found && safeAddress(found[1]);
    return address ? this.add(link(address, found[1]), at + found[0].length) : 0;
  }

  bare(at) {
    barePattern.lastIndex = at;
    const found = this.links && !isWord(this.text[at - 1]) && barePattern.exec(this.text);
    if (!found) return 0;
    let words = found[0].replace(/[.,;:!?'*_~]+$/, "");
    if (words.endsWith(")") && !words.includes("(")) words = words.slice(0, -1).replace(/[.,;:!?]+$/, "");
    const address = safeAddress(words);
    return address ? this.add(link(address, words), at + words.length) : 0;
  }
}

// Keeps a formula as written. Markdown would read its underscores and backslashes as marks.
const maths = (text) => make("span", {class: "maths"}, text);

function inlineMarkdown(text, depth = 0, links = true) {
  return new InlineReader(text, depth, links).read();
}
