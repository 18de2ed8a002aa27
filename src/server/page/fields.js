// The settings and their accepted values. `read` turns a field's text into its value, or undefined if the text is
// empty. It throws an Error that says what is accepted.
const settingFields = [
  {id: "system", name: "System prompt", read: (text) => text.trim() || undefined},
  {id: "temperature", name: "Temperature", read: (text) => readNumber(text, "a number from 0 to 100", (n) => n >= 0 && n <= 100)},
  {id: "top-p", name: "Top-p", read: (text) => readNumber(text, "a number above 0, up to 1", (n) => n > 0 && n <= 1)},
  {id: "max-tokens", name: "Max tokens", read: (text) => readNumber(text, "a whole number from 1 to 2147483647",
    (n) => Number.isInteger(n) && n >= 1 && n <= 2147483647)},
  {id: "seed", name: "Seed", read: (text) => readNumber(text, "a whole number from −9007199254740991 to 9007199254740991", Number.isSafeInteger)},
  {id: "stop", name: "Stop strings", read: readStops},
  {id: "schema", name: "JSON schema", read: (text) => readJson(text, "a JSON object", (json) => typeof json === "object" && !Array.isArray(json))},
  {id: "tool-list", name: "Tools", read: (text) => readJson(text, "a JSON list as in the API", Array.isArray)},
  {id: "api-key", name: "API key", read: readKey},
];

function readNumber(text, accepted, good) {
  const trimmed = text.trim().replace(/^−/, "-");
  if (!trimmed) return undefined;
  const value = /^[-+]?(\d+\.?\d*|\.\d+)$/.test(trimmed) ? Number(trimmed) : NaN;
  if (!good(value)) throw new Error(accepted);
  return value;
}

function readJson(text, accepted, good) {
  if (!text.trim()) return undefined;
  let json;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new Error(`${accepted} (${error.message})`);
  }
  if (json === null || !good(json)) throw new Error(accepted);
  return json;
}

const kMaxStops = 32;
// Reads stop texts, one per line. A line break inside a text is written \n, a tab \t, a backslash \\.
function readStops(text) {
  const lines = text.split("\n").filter((line) => line !== "");
  if (!lines.length) return undefined;
  if (lines.length > kMaxStops) throw new Error(`at most ${kMaxStops} lines`);
  return lines.map((line) => line.replace(/\\(.?)/g, (_, letter) => {
    const meant = {n: "\n", t: "\t", "\\": "\\"}[letter];
    if (meant == null) throw new Error("\\n, \\t and \\\\ after a backslash");
    return meant;
  }));
}

// Reads an API key. A header may contain only visible ASCII.
function readKey(text) {
  if (!/^[\x21-\x7e]*$/.test(text.trim())) throw new Error("letters, digits and signs of ASCII, without blanks");
  return text.trim() || undefined;
}
