// Marks comments, strings, numbers, keywords and calls in code of the most common languages. It recognises words, not
// grammars, and leaves unknown text plain. It makes one pass, linear in the length of the code.
const kMaxHighlighted = 50000;  // in characters; longer code stays plain

const kWords = {
  c: "alignas auto bool break case catch char class concept const consteval constexpr continue decltype default delete do double else enum explicit export extern false final float for friend goto if inline int long mutable namespace new noexcept nullptr operator override private protected public register requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typename union unsigned using virtual void volatile while __global__ __device__ __shared__ __host__",
  js: "as async await break case catch class const continue debugger default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null of return set static super switch this throw true try type typeof undefined var void while with yield",
  python: "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield",
  rust: "Self as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self static struct super trait true type unsafe use where while",
  go: "break case chan const continue default defer else fallthrough false for func go goto if import interface iota map nil package range return select struct switch true type var",
  java: "abstract assert boolean break byte case catch char class const continue data default do double else enum extends false final finally float for fun if implements import instanceof int interface internal long native new null object open override package private protected public record return sealed short static super switch synchronized this throw throws true try val var void volatile when while",
  shell: "case do done elif else esac exit export fi for function if in local read return set shift then trap unset until while",
  sql: "add all alter and as asc between by case check column constraint create cross default delete desc distinct drop else end exists false foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right select set table then true union unique update values view when where with",
  data: "true false null yes no on off",
};
const kStrings = {
  double: /"(?:[^"\\\n]|\\.)*"?/, single: /'(?:[^'\\\n]|\\.)*'?/, back: /`(?:[^`\\]|\\[^])*`?/,
  triple: /"""[^]*?(?:"""|$(?![^]))|'''[^]*?(?:'''|$(?![^]))/, sql: /'(?:[^']|'')*'?/,
};
const kComments = {slashes: /\/\/[^\n]*/, block: /\/\*[^]*?(?:\*\/|$(?![^]))/, hash: /#[^\n]*/, dashes: /--[^\n]*/, markup: /<!--[^]*?(?:-->|$(?![^]))/};

const languageOf = (comments, strings, words, rest) => ({comments, strings, words: new Set(words.split(" ")), ...rest});
const kLanguages = (() => {
  const {double, single, back, triple, sql} = kStrings;
  const {slashes, block, hash, dashes, markup} = kComments;
  return {
    c: languageOf([slashes, block], [double, single], kWords.c, {directive: /^[ \t]*#[ \t]*\w+/}),
    js: languageOf([slashes, block], [back, double, single], kWords.js),
    python: languageOf([hash], [triple, double, single], kWords.python),
    rust: languageOf([slashes, block], [double, /'(?:[^'\\\n]|\\.)'/], kWords.rust),
    go: languageOf([slashes, block], [back, double, single], kWords.go),
    java: languageOf([slashes, block], [double, single], kWords.java),
    shell: languageOf([/(?<![^\s;])#[^\n]*/], [double, /'[^']*'?/], kWords.shell),
    sql: languageOf([dashes, block], [sql, double], kWords.sql, {anyCase: true}),
    json: languageOf([], [double], kWords.data, {key: /"(?:[^"\\\n]|\\.)*"(?=\s*:)/}),
    yaml: languageOf([/(?<!\S)#[^\n]*/], [double, single], kWords.data, {key: /^[ \t]*(?:- )?[\w.][\w.-]{0,99}(?=[ \t]{0,9}[:=])|^\[[^\]\n]*\]/}),
    css: languageOf([block], [double, single], "important", {key: /[\w-]{1,40}(?=\s{0,9}:)/, directive: /@[\w-]+/}),
    html: languageOf([markup], [double, single], "", {key: /<\/?[\w:-]+|\/?>/}),
  };
})();
const kAliases = {cpp: "c", "c++": "c", cc: "c", h: "c", hpp: "c", cuda: "c", cu: "c", csharp: "java", cs: "java", kotlin: "java", swift: "java",
  javascript: "js", jsx: "js", ts: "js", tsx: "js", typescript: "js", py: "python", python3: "python", rs: "rust", golang: "go", bash: "shell",
  sh: "shell", zsh: "shell", console: "shell", dockerfile: "shell", makefile: "shell", json5: "json", jsonl: "json", yml: "yaml", toml: "yaml", ini: "yaml",
  scss: "css", xml: "html", svg: "html", mysql: "sql", postgresql: "sql", sqlite: "sql"};

// Returns one pattern with a group for each kind, in the order of matching. The kinds are the marks' CSS classes.
function patternOf(language) {
  const group = (name, patterns) => patterns.length ? [`(?<${name}>${patterns.map((p) => p.source).join("|")})`] : [];
  return new RegExp([...group("comment", language.comments), ...group("key", [language.key, language.directive].filter(Boolean)),
    ...group("string", language.strings), "(?<number>\\b(?:0[xXbB][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][-+]?\\d+)?)\\w*)",
    "(?<word>[A-Za-z_$][\\w$]*)"].join("|"), "gm");
}

// Returns text nodes and marks for `code`. `name` is the language after the fence's ticks.
function highlighted(code, name) {
  const key = name.toLowerCase();
  const alias = Object.hasOwn(kAliases, key) ? kAliases[key] : key;
  const language = Object.hasOwn(kLanguages, alias) ? kLanguages[alias] : null;
  if (!language || code.length > kMaxHighlighted) return [code];
  language.pattern ??= patternOf(language);
  const nodes = [];
  let end = 0;
  for (const found of code.matchAll(language.pattern)) {
    let kind = Object.keys(found.groups).find((group) => found.groups[group] != null);
    const text = found[0], after = found.index + text.length;
    if (kind === "word") {
      const word = language.anyCase ? text.toLowerCase() : text;
      kind = language.words.has(word) ? "keyword" : code[after] === "(" ? "call" : null;
    }
    if (!kind) continue;
    if (found.index > end) nodes.push(code.slice(end, found.index));
    nodes.push(make("span", {class: `code-${kind}`}, text));
    end = after;
  }
  if (end < code.length) nodes.push(code.slice(end));
  return nodes;
}
