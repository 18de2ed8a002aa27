#include "tessera/server/openai/chat_request.h"

#include <fmt/format.h>

#include "tessera/server/fields/prompts.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/http/api_error.h"
#include "tessera/server/images/prompt_images.h"
#include "tessera/server/openai/chat_answer.h"
#include "tessera/server/openai/chat_prompt.h"
#include "tessera/server/openai/chat_text_style.h"
#include "tessera/server/openai/sampling_fields.h"
#include "tessera/server/tools/chat_tools.h"

namespace tessera {
namespace {

ApiStatus read_logprobs(const ApiFields& fields, LogprobOptions& out) {
  const bool wanted = TRY(fields.boolean_or("logprobs", false));
  const std::optional<std::int64_t> top = TRY(fields.integer("top_logprobs", 0, kMaxTopLogprobs));
  if (top && *top > 0 && !wanted) return fields.wrong("top_logprobs", "0 where \"logprobs\" is not true");
  if (wanted) out.output = static_cast<int>(top.value_or(0));
  return api_ok();
}

// Reads which parts of the prompt the answer shows, and whether it shows the reasoning.
ApiStatus read_answer_extras(const ApiFields& fields, const ChatPrompt& prompt, ChatStyle& out) {
  out.include_reasoning = TRY(fields.boolean_or("include_reasoning", true));
  out.token_ids = TRY(fields.boolean_or("return_token_ids", false));
  const bool ids = TRY(fields.boolean_or("return_prompt_token_ids", false));
  const bool text = TRY(fields.boolean_or("return_prompt_text", false));
  if (ids || out.token_ids) out.prompt_ids = prompt.ids;
  out.choices_have_prompt_ids = ids;
  if (text) out.prompt_text = prompt.text;
  for (const std::string_view key : {"return_token_ids", "return_prompt_token_ids", "return_prompt_text"}) {
    const bool wanted = fields.find(key) != nullptr && fields.find(key)->as_bool();
    if (wanted && out.stream.stream) return fields.unsupported(key, "false where \"stream\" is true");
  }
  return api_ok();
}

ApiResult<std::optional<OutputGrammar>> read_grammar(const OutputFields& output, const ToolFields& tools) {
  std::optional<OutputGrammar> grammar = TRY(tool_grammar(tools));
  if (!grammar) return output.grammar;
  if (output.grammar) {
    return unsupported_field(
        output.grammar->param,
        "\"tool_choice\" constrains the output already; accepted: \"tool_choice\" \"auto\" or \"none\"");
  }
  return grammar;
}

}  // namespace

ApiResult<ApiJob> prepare_chat(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  std::string adapter = TRY(model.named_adapter(json, &ServedModel::check_named));
  TRY(model.check_generates());
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kChat, model.allow_unknown_fields));
  TRY(check_metadata(fields));
  adapter = TRY(model.adapter_by_path(fields, std::move(adapter)));
  const OutputFields output = TRY(read_output_fields(fields, model));
  if (output.max_new_tokens == 0) return no_tokens_asked(fields, "at least 1");
  ToolFields tools = TRY(read_tools(fields));
  // For a model without a call format of its own, the server describes the tools in the messages, and a note in the
  // answer says so. If the request gives ids, its messages are not rendered and the ids must not be changed. The tools
  // are then not described, and there is no note.
  const bool renders = fields.find("input_ids") == nullptr;
  const std::string note = renders ? withdraw_generic_tools(model, output.grammar.has_value(), tools) : "";
  ChatPrompt prompt = TRY(read_chat_prompt(fields, model, tools));
  const Truncation truncation = TRY(read_truncation(fields, model, output.max_new_tokens));
  if (truncation.most && *truncation.most < std::ssize(prompt.ids) && !prompt.images.empty())
    return fields.unsupported("truncate_prompt_tokens", "none where a longer prompt has images");
  if (truncation.most && *truncation.most < std::ssize(prompt.ids)) prompt.branch_tokens.clear();
  truncation.apply(prompt.ids);
  const std::optional<OutputGrammar> grammar = TRY(read_grammar(output, tools));

  ChatStyle style{.id = TRY(read_answer_id(fields, "chatcmpl-")),
                  .model = adapter.empty() ? model.name : adapter,
                  .fingerprint = model.fingerprint,
                  .n = output.n,
                  .tokenizer = model.tokenizer};
  style.stream = TRY(read_stream_fields(fields, model.allow_unknown_fields));
  style.stream.interval = model.stream_interval;
  const TokenExtras extras = TRY(read_token_extras(fields, style.stream.stream));
  style.graph_info = output.return_graph_info;
  const bool separate = TRY(fields.boolean_or("separate_reasoning", true));
  style.text = TRY(text_style_of(model, tools, prompt, grammar.has_value(), separate));
  TRY(read_answer_extras(fields, prompt, style));
  style.echo = std::move(prompt.echo);
  style.tokens_as_ids = extras.tokens_as_ids;
  style.prompt_logprobs = extras.prompt_logprobs.has_value();
  style.hidden_states = extras.hidden_states;
  style.hidden_size = model.hidden_size;
  style.image_tokens = image_tokens(prompt.images);
  Request request{.prompt = std::move(prompt.ids),
                  .images = std::move(prompt.images),
                  .sampling = output.sampling,
                  .stop = output.stop,
                  .adapter = std::move(adapter),
                  .return_graph_info = output.return_graph_info,
                  .skip_special_tokens = output.skip_special_tokens,
                  .priority = output.priority,
                  .timeout_s = output.timeout_s,
                  .retention = output.retention,
                  .branch_tokens = std::move(prompt.branch_tokens)};
  TRY(read_logprobs(fields, request.logprobs));
  style.logprobs = request.logprobs.output.has_value();
  request.logprobs.prompt = extras.prompt_logprobs;
  request.return_hidden_states = request.last_hidden_state_only = extras.hidden_states;
  TRY(model.set_length(request, output.max_new_tokens, model.context_length, "messages"));
  TRY(FanOut().add(output.n, std::ssize(request.prompt) + ids_of_parameters(output), "n"));
  request.grammar = TRY(compile_grammar(grammar, output, model));
  if (needs_special_tokens(style.text)) request.skip_special_tokens = false;
  style.prompt_tokens = std::ssize(request.prompt);

  ApiJob job{.id = style.id, .stream = style.stream.stream, .note = note};
  append_choices(output, request, job.requests);
  job.answer = make_chat_answer(std::move(style));
  // Checks, before the engine gets the request, whether a plugin format failed to begin its parser.
  if (const Status failure = job.answer->failure(); !failure.ok()) return api_error(failure);
  return job;
}

ApiResult<std::string> render_chat(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  TRY(model.check_name(json));
  TRY(model.check_generates());
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kChat, model.allow_unknown_fields));
  if (fields.find("input_ids") != nullptr)
    return fields.unsupported("input_ids", "\"messages\", which the template renders");
  const OutputFields output = TRY(read_output_fields(fields, model));
  ToolFields tools = TRY(read_tools(fields));
  withdraw_generic_tools(model, output.grammar.has_value(), tools);
  ChatPrompt prompt = TRY(read_chat_prompt(fields, model, tools));
  return std::move(prompt.text);
}

}  // namespace tessera
