#include "tessera/server/openai/completion_request.h"

#include <fmt/format.h>

#include "tessera/server/fields/prompts.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/openai/completion_answer.h"
#include "tessera/server/openai/sampling_fields.h"

namespace tessera {
namespace {

constexpr std::int64_t kDefaultTokens = 16;  // OpenAI's default

struct Extras {
  TokenExtras tokens{};
  bool echo = false;
  std::optional<int> logprobs;  // the number of most probable tokens to return
};

ApiResult<Extras> read_extras(const ApiFields& fields, bool stream) {
  Extras extras;
  extras.echo = TRY(fields.boolean_or("echo", false));
  const std::optional<std::int64_t> top = TRY(fields.integer("logprobs", 0, kMaxTopLogprobs));
  if (top) extras.logprobs = static_cast<int>(*top);
  if (extras.echo && extras.logprobs && stream) {
    return fields.unsupported("logprobs", "none where \"echo\" and \"stream\" are true");
  }
  extras.tokens = TRY(read_token_extras(fields, stream));
  const bool both = extras.echo && extras.logprobs && extras.tokens.prompt_logprobs;
  if (both && extras.tokens.prompt_logprobs != extras.logprobs) {
    return fields.unsupported("prompt_logprobs", "the value of \"logprobs\" where \"echo\" is true");
  }
  return extras;
}

}  // namespace

ApiResult<ApiJob> prepare_completion(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  std::string adapter = TRY(model.named_adapter(json, &ServedModel::check_named));
  TRY(model.check_generates());
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kCompletions, model.allow_unknown_fields));
  TRY(check_metadata(fields));
  adapter = TRY(model.adapter_by_path(fields, std::move(adapter)));
  const OutputFields output = TRY(read_output_fields(fields, model));
  CompletionStyle style{.id = TRY(read_answer_id(fields, "cmpl-")),
                        .model = adapter.empty() ? model.name : adapter,
                        .fingerprint = model.fingerprint,
                        .n = output.n,
                        .tokenizer = model.tokenizer};
  style.stream = TRY(read_stream_fields(fields, model.allow_unknown_fields));
  style.stream.interval = model.stream_interval;
  const Extras extras = TRY(read_extras(fields, style.stream.stream));
  // Without output tokens, the answer can only have the prompt's text or the prompt's log-probabilities. A request that
  // asks for neither is an error.
  if (output.max_new_tokens == 0 && !extras.echo && !extras.tokens.prompt_logprobs)
    return no_tokens_asked(fields, "at least 1, or 0 beside \"echo\" or \"prompt_logprobs\"");
  style.logprobs = extras.logprobs.has_value();
  // Returns token ids by default if there is no tokenizer, because the answer then has nothing else.
  style.token_ids = TRY(fields.boolean_or("return_token_ids", model.tokenizer == nullptr));
  style.tokens_as_ids = extras.tokens.tokens_as_ids;
  style.echo_logprobs = extras.echo && extras.logprobs;
  style.prompt_logprobs = extras.tokens.prompt_logprobs.has_value();
  style.hidden_states = extras.tokens.hidden_states;
  style.hidden_size = model.hidden_size;
  const bool add_special = TRY(fields.boolean_or("add_special_tokens", true));
  Prompts prompts = TRY(read_prompts(fields, "prompt", model, add_special));
  const Truncation truncation = TRY(read_truncation(fields, model, output.max_new_tokens));
  for (std::vector<TokenId>& prompt : prompts.ids) truncation.apply(prompt);
  FanOut fan_out;
  for (const std::vector<TokenId>& prompt : prompts.ids)
    TRY(fan_out.add(output.n, std::ssize(prompt) + ids_of_parameters(output), "prompt"));

  ApiJob job{.id = style.id, .stream = style.stream.stream};
  style.graph_info = output.return_graph_info;
  Request request{.sampling = output.sampling,
                  .stop = output.stop,
                  .adapter = std::move(adapter),
                  .return_graph_info = output.return_graph_info,
                  .skip_special_tokens = output.skip_special_tokens,
                  .priority = output.priority,
                  .timeout_s = output.timeout_s,
                  .retention = output.retention};
  request.logprobs.output = extras.logprobs;
  request.logprobs.prompt = extras.tokens.prompt_logprobs;
  if (extras.echo && extras.logprobs) request.logprobs.prompt = extras.logprobs;
  request.return_hidden_states = request.last_hidden_state_only = extras.tokens.hidden_states;
  request.grammar = TRY(compile_grammar(output.grammar, output, model));
  for (std::vector<TokenId>& prompt : prompts.ids) {
    request.prompt = std::move(prompt);
    TRY(model.set_length(request, output.max_new_tokens, kDefaultTokens, "prompt"));
    style.prompt_tokens.push_back(std::ssize(request.prompt));
    if (extras.echo && model.tokenizer != nullptr) {
      style.echo.push_back(model.tokenizer->decode(request.prompt, output.skip_special_tokens));
    }
    append_choices(output, request, job.requests);
  }
  job.answer = make_completion_answer(std::move(style));
  return job;
}

}  // namespace tessera
