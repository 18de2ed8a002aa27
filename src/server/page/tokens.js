// Shows the tokens of an answer with the probability that the model gave to each. Shades stand for ranges of
// probabilities. The line below shows the selected token's probability and the model's alternatives. The pointer and
// the arrow keys select a token.

// Reads a choice's "logprobs" in the form of chats or completions. Returns [{text, logprob, top: [{text, logprob}]}].
function tokensOf(logprobs) {
  if (logprobs?.content) {
    return logprobs.content.map((t) => ({text: t.token, logprob: t.logprob,
      top: (t.top_logprobs || []).map((o) => ({text: o.token, logprob: o.logprob}))}));
  }
  return (logprobs?.tokens || []).map((text, i) => ({text, logprob: logprobs.token_logprobs[i],
    top: Object.entries(logprobs.top_logprobs?.[i] || {}).map(([other, logprob]) => ({text: other, logprob}))}));
}

const kChanceLevels = [[0.9, "90 % and more"], [0.5, "50 to 90 %"], [0.1, "10 to 50 %"], [0.01, "1 to 10 %"], [0, "below 1 %"]];
const chanceLevel = (logprob) => kChanceLevels.findIndex(([least]) => Math.exp(logprob) >= least);
const chanceText = (logprob) => shareText(Math.exp(logprob), 1);
const quoted = (text) => `“${text.replaceAll("\n", "⏎").replaceAll("\t", "⇥")}”`;

class TokenView {
  constructor(tokens) {
    this.tokens = tokens;
    this.chosen = 0;
    this.spans = tokens.map((token, i) => make("span", {class: `token p${chanceLevel(token.logprob)}`, role: "option",
      "aria-label": `${quoted(token.text)} ${chanceText(token.logprob)}`, "aria-selected": "false", tabindex: i ? "-1" : "0"}, token.text));
    this.list = make("div", {class: "tokens", role: "listbox", "aria-orientation": "horizontal",
      "aria-label": "Tokens with their probabilities. Arrow keys go through them."}, ...this.spans);
    this.read = make("p", {class: "token-read"}, "Point at a token, or go through them with the arrow keys.");
    this.node = make("div", {class: "token-view"}, this.list, this.read,
      make("p", {class: "legend"}, ...kChanceLevels.map(([, name], i) => make("span", {}, make("i", {class: `token p${i}`}, "a"), name))));
    const at = (event) => this.spans.indexOf(event.target);
    this.list.addEventListener("pointerover", (event) => this.choose(at(event)));
    this.list.addEventListener("click", (event) => this.choose(at(event)));
    this.list.addEventListener("focusin", (event) => this.choose(at(event)));
    this.list.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -1e9, End: 1e9}[event.key];
      if (!step) return;
      event.preventDefault();
      this.spans[Math.max(0, Math.min(this.spans.length - 1, this.chosen + step))].focus();
    });
  }

  choose(index) {
    if (index < 0) return;
    const before = this.spans[this.chosen];
    before.tabIndex = -1;
    before.setAttribute("aria-selected", "false");
    this.chosen = index;
    this.spans[index].tabIndex = 0;
    this.spans[index].setAttribute("aria-selected", "true");
    const {text, logprob, top} = this.tokens[index];
    const others = top.filter((other) => other.text !== text);
    this.read.replaceChildren(make("b", {}, quoted(text)), ` ${chanceText(logprob)} (log-probability ${logprob.toFixed(4).replace("-", "−")})`,
      ...(others.length ? ["; instead: ", others.map((other) => `${quoted(other.text)} ${chanceText(other.logprob)}`).join(", ")] : []));
  }
}
