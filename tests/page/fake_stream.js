// Replaces the server's POST routes, so that a test controls which bytes of an answer arrive and when. The page's clock
// does not advance until the test sets it, so the times and rates that the page shows are exact. Evaluated in the page
// before its first request.
window.fake = {
  requests: [],   // {path, body}
  refusal: null,  // [status, error]: the answer to the next request
  now: 1000,      // the result of performance.now(), in ms

  // Makes the text's bytes arrive at `now`. Resolves when the page has taken them and asks for more.
  async arrive(now, text) {
    this.now = now;
    const {controller} = this;
    const asked = new Promise((resolve) => { this.pulled = resolve; });
    controller.enqueue(typeof text === "string" ? new TextEncoder().encode(text) : text);
    await asked;
  },
  // Ends the connection, after "[DONE]" if `done`.
  async end(now, done = true) {
    this.now = now;
    if (done) this.controller.enqueue(new TextEncoder().encode("data: [DONE]\n\n"));
    this.controller.close();
  },
  event: (json) => `data: ${JSON.stringify(json)}\n\n`,
  // Returns a chunk of a chat's answer; `tokens` is the number of tokens so far.
  chunk: (content, tokens, more = {}) => fake.event({choices: [{index: 0, delta: {content}, logprobs: null, finish_reason: null, ...more}],
    usage: {prompt_tokens: 7, completion_tokens: tokens}}),
};

performance.now = () => fake.now;
const trueFetch = window.fetch;
window.fetch = async (path, options) => {
  if (options?.method !== "POST") return trueFetch(path, options);
  fake.requests.push({path, body: JSON.parse(options.body)});
  if (fake.refusal) {
    const [status, error] = fake.refusal;
    fake.refusal = null;
    return new Response(JSON.stringify({error}), {status});
  }
  const stream = new ReadableStream({start: (controller) => { fake.controller = controller; }, pull: () => fake.pulled?.()}, {highWaterMark: 0});
  options.signal.addEventListener("abort", () => fake.controller.error(new DOMException("aborted", "AbortError")));
  return new Response(stream);
};
