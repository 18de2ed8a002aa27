// The body of a request for an answer to a chat, or, if the model has no chat template, for the continuation of a text.
const kAlternatives = 5;      // number of alternatives per token, if log-probabilities are requested
const kCompletionTokens = 256;  // limit of a continued text if the settings have none; nothing else may end such a text

const requestPath = (completes) => completes ? "/v1/completions" : "/v1/chat/completions";

// Returns the body. `exchanges`: the exchanges before the question. `question`: the text to answer or to continue.
// `images`: the question's images.
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
