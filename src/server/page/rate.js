// The speed of an answer. The server counts the tokens (`usage` in every event of a stream). A token's time is the
// arrival of its bytes, so tokens that arrived together have one time. The clock starts with the first arrival. The
// tokens of this arrival do not count, because their time is the time to the first token.
const kLeastSpan_ms = 50;  // shorter spans measure buffers and the browser's work, not the server

class TokenRate {
  // Takes an event. `tokens`: the number of tokens so far; `at`: the arrival time of the event in ms.
  take(tokens, at) {
    if (!tokens || tokens === this.last?.tokens) return;
    this.last = {tokens, at};
    if (this.first == null || this.first.at === at) this.first = this.last;
  }

  // Returns the time from the first arrival to the last one in ms.
  get span_ms() {
    return this.last ? this.last.at - this.first.at : 0;
  }

  // Returns the rate of all tokens since `began` (ms), including the wait for the first token; null before the first
  // token.
  perSecondSince(began) {
    return this.last && this.last.at > began ? this.last.tokens * 1000 / (this.last.at - began) : null;
  }

  // Returns the rate between the first and the last arrival. Returns null if all tokens came at almost the same time;
  // use perSecondSince() then.
  perSecond() {
    return this.span_ms < kLeastSpan_ms ? null : (this.last.tokens - this.first.tokens) * 1000 / this.span_ms;
  }
}
