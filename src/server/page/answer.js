// An answer: its text so far, and the elements that show the text.
class Answer {
  // `given`: the text to be continued, or null in a chat. `saved`: a stored answer's {content, reasoning}.
  constructor(given, saved) {
    this.given = given;
    this.content = saved?.content || "";
    this.reasoning = saved?.reasoning || "";
    this.calls = [];
    this.tokens = [];  // with log-probabilities, if they were requested
    this.rate = new TokenRate();
    this.began = performance.now();
    this.said = make("div", {class: given == null ? "said" : "said plain"});
    this.foot = make("div", {class: "foot"});
    this.node = make("article", {class: "turn answer", "aria-label": "Answer"}, this.said, this.foot);
    if (saved) this.end();
    else {
      this.node.setAttribute("aria-busy", "true");
      this.draw();
    }
  }

  // Takes one event of the stream and its arrival time.
  take({json, at}) {
    if (json.usage) {
      this.usage = json.usage;
      this.rate.take(json.usage.completion_tokens, at);
    }
    const choice = json.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const delta = choice.delta || {content: choice.text};
    for (const call of delta.tool_calls || []) {
      const known = this.calls[call.index ?? 0] ??= {name: "", arguments: ""};
      known.name += call.function?.name || "";
      known.arguments += call.function?.arguments || "";
    }
    this.reasoning += delta.reasoning_content || "";
    this.content += delta.content || "";
    this.tokens.push(...tokensOf(choice.logprobs));
    if (this.first == null && (this.reasoning || this.content || this.calls.length)) this.first = at;
    if (this.answered == null && this.content) this.answered = at;
    if (!this.pending) {
      this.pending = true;
      requestAnimationFrame(() => { this.pending = false; following(() => this.draw()); });
    }
  }

  draw() {
    this.drawThought();
    const empty = !this.content && !this.calls.length;
    this.said.classList.toggle("waiting", !this.ended && empty);
    this.said.classList.toggle("live", !this.ended && !empty && this.given == null);
    if (this.given != null) this.said.replaceChildren(make("span", {class: "given"}, this.given), this.content);
    else drawMarkdown(this.said, this.content);
    this.drawCalls();
  }

  drawThought() {
    if (!this.reasoning) return;
    if (!this.thought) {
      this.thought = make("details", {class: "thought"}, make("summary"), make("div"));
      this.said.before(this.thought);
    }
    const [summary, text] = this.thought.children;
    const end = this.answered ?? this.ended;
    setText(summary, this.first == null ? "Thoughts" : end ? `Thought for ${secondsText((end - this.first) / 1000)}` : "Thinking …");
    setText(text, this.reasoning.trim());
  }

  drawCalls() {
    if (!this.calls.length) return;
    this.callList ??= this.foot.parentNode.insertBefore(make("div"), this.foot);
    this.callList.replaceChildren(...this.calls.filter(Boolean).map((call) =>
      make("div", {class: "call"}, make("strong", {}, call.name), make("pre", {}, prettyJson(call.arguments)))));
  }

  // Returns one line with the answer's figures: tokens, times and rates as far as they are known.
  facts(note) {
    const facts = [];
    const tokens = this.usage?.completion_tokens;
    if (tokens != null) facts.push(`${countText(tokens)} token${tokens === 1 ? "" : "s"}`);
    if (this.first != null) facts.push(`first after ${secondsText((this.first - this.began) / 1000)}`);
    const rate = this.rate.perSecond();
    if (rate != null) facts.push(`${rateText(rate)} tokens/s`);
    else if (tokens > 1 && this.rate.perSecondSince(this.began) != null) facts.push(`${rateText(this.rate.perSecondSince(this.began))} tokens/s in all`);
    const {accepted_prediction_tokens: kept, rejected_prediction_tokens: refused} = this.usage?.completion_tokens_details ?? {};
    if (kept != null) facts.push(`${countText(kept)} of ${countText(kept + refused)} drafts kept`);
    if (note) facts.push(note);
    else if (this.finish === "length") facts.push("cut at the token limit");
    return facts.join(" · ");
  }

  end(note) {
    this.ended = performance.now();
    this.node.setAttribute("aria-busy", "false");
    this.draw();
    this.foot.replaceChildren(make("span", {class: "facts"}, this.facts(note)));
  }

  fail(error) {
    this.end();
    this.foot.before(make("div", {class: "fault", role: "alert"}, error.message,
      error.detail ? make("small", {}, error.detail) : null));
  }
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
