// What the page asks the server for: an answer to a chat, or, where the model has no chat template, the text that follows a text.
const kAlternatives = 5;      // of each token, where log-probabilities are wanted
const kCompletionTokens = 256;  // of a text without a limit of its own: nothing else ends it

const requestPath = (completes) => completes ? "/v1/completions" : "/v1/chat/completions";

// `exchanges`: those before; `question`, with its images: what is to be answered, or continued.
function requestBody(exchanges, {question, images, completes}) {
  const {system, temperature, seed, stop, schema, "top-p": topP, "max-tokens": maxTokens, "tool-list": tools} = settings.values;
  const body = {model: engine.state?.model.name, stream: true, stream_options: {include_usage: true, continuous_usage_stats: true}, temperature, top_p: topP, seed, stop,
    max_tokens: maxTokens};
  if (schema) body.response_format = {type: "json_schema", json_schema: {name: "answer", strict: true, schema}};
  if (completes) {
    if (settings.wantsLogprobs) body.logprobs = kAlternatives;
    return {...body, max_tokens: maxTokens ?? kCompletionTokens, prompt: question};
  }
  if (settings.wantsLogprobs) Object.assign(body, {logprobs: true, top_logprobs: kAlternatives});
  body.messages = [...(system ? [{role: "system", content: system}] : []), ...exchanges.flatMap((e) => e.messages()),
    {role: "user", content: contentOf(question, images)}];
  if (tools?.length) body.tools = tools;
  return body;
}
