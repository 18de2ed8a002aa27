// How fast an answer came. The server counts the tokens (`usage` in every event of a stream), and a token's time is when its
// bytes arrived. Tokens that arrived together have one time. Those of the first arrival are where the clock starts, and
// do not count: how long they took is the time to the first token.
const kLeastSpan_ms = 50;  // below this, buffers and the browser's own work decide, not the server

class TokenRate {
  // `tokens`: how many there are by now; `at`: when the bytes that say so arrived, in ms.
  take(tokens, at) {
    if (!tokens || tokens === this.last?.tokens) return;
    this.last = {tokens, at};
    if (this.first == null || this.first.at === at) this.first = this.last;
  }

  // Between the first arrival and the last one, in ms.
  get span_ms() {
    return this.last ? this.last.at - this.first.at : 0;
  }

  // Of all tokens since `began`, in ms: the wait for the first one is part of it. null before any came.
  perSecondSince(began) {
    return this.last && this.last.at > began ? this.last.tokens * 1000 / (this.last.at - began) : null;
  }

  // null where all came together, or nearly so: then perSecondSince() is what can be told.
  perSecond() {
    return this.span_ms < kLeastSpan_ms ? null : (this.last.tokens - this.first.tokens) * 1000 / this.span_ms;
  }
}
