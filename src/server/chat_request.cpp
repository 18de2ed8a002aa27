#include "tessera/server/chat_request.h"

#include <fmt/format.h>

#include "tessera/server/chat_answer.h"
#include "tessera/server/chat_messages.h"
#include "tessera/server/chat_tools.h"
#include "tessera/server/generic_tools.h"
#include "tessera/server/prompts.h"
#include "tessera/server/sampling_fields.h"

namespace tessera {
namespace {

ApiResult<Json> read_template_variables(const ApiFields& fields) {
  const Json* given = TRY(fields.object("chat_template_kwargs"));
  Json variables = given != nullptr ? *given : Json::object();
  // These variables are set by other fields of the request and may not be given here.
  for (const std::string_view name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (variables.find(name) != nullptr)
      return fields.wrong("chat_template_kwargs", fmt::format("an object without \"{}\"", name));
  }
  if (const auto thinking = TRY(fields.boolean("enable_thinking"))) variables.set("enable_thinking", *thinking);
  if (const auto effort = TRY(fields.string("reasoning_effort"))) variables.set("reasoning_effort", *effort);
  return variables;
}

ApiResult<std::string> render_prompt(const ApiFields& fields, const ServedModel& model, const ToolFields& tools) {
  Json messages = TRY(read_messages(fields, model.knows_developer));
  RenderOptions options;
  options.add_generation_prompt = TRY(fields.boolean_or("add_generation_prompt", true));
  options.bos_token = model.bos_token;
  options.eos_token = model.eos_token;
  options.extra = TRY(read_template_variables(fields));
  const bool generic = model.tool_call_parser == kGenericToolParser;
  const bool native = !generic && !tools.tools.is_null();
  const ChatTemplate& chat = native && model.tool_chat ? *model.tool_chat : *model.chat;
  if (native) options.tools = tools.tools;
  if (generic) {
    const bool shows_system = tools.tools.is_array() && shows_system_message(chat, options);
    messages = with_generic_tools(messages, tools, shows_system);
  }
  Result<std::string> prompt = chat.render(messages, options);
  if (!prompt.ok()) return invalid_field("messages", prompt.status().message());
  return *std::move(prompt);
}

ApiStatus read_logprobs(const ApiFields& fields, LogprobOptions& out) {
  const bool wanted = TRY(fields.boolean_or("logprobs", false));
  const std::optional<std::int64_t> top = TRY(fields.integer("top_logprobs", 0, kMaxTopLogprobs));
  if (top && *top > 0 && !wanted) return fields.wrong("top_logprobs", "0 where \"logprobs\" is not true");
  if (wanted) out.output = static_cast<int>(top.value_or(0));
  return api_ok();
}

// A grammar holds from the first token on, so that its text has neither reasoning nor calls in the model's own form.
ApiResult<ChatTextStyle> text_style(const ApiFields& fields, const ServedModel& model, const ToolFields& tools,
                                    bool constrained, const std::string& prompt) {
  ChatTextStyle style{.choice = tools.choice, .named = tools.named, .parallel = tools.parallel};
  const bool separate = TRY(fields.boolean_or("separate_reasoning", true));
  if (constrained) {
    if (tools.choice == ToolChoice::kAuto) style.choice = ToolChoice::kNone;
    return style;
  }
  if (separate) style.reasoning_parser = model.reasoning_parser;
  style.prompt_opens_reasoning = opens_reasoning(prompt);
  if (tools.choice == ToolChoice::kAuto) {
    if (model.tool_call_parser.empty()) {
      return unsupported_field(
          "tools",
          "this server finds no tool calls, its --tool-call-parser is none; accepted: no tools, or a "
          "\"tool_choice\" of \"none\"");
    }
    style.tool_call_parser = model.tool_call_parser;
    style.tools = tools.tools;
  }
  return style;
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

// What the answer tells its client about its tools; "" where they are the model's own. Tools in the generic form are
// called by a text that a constraint of the output does not let through, and are withdrawn then.
std::string note_of(const ServedModel& model, const OutputFields& output, ToolFields& tools) {
  if (model.tool_call_parser != kGenericToolParser || !tools.tools.is_array()) return "";
  if (tools.choice != ToolChoice::kAuto || !output.grammar) return std::string(kGenericToolNote);
  tools = {};
  return std::string(kNoGenericToolsNote);
}

}  // namespace

ApiResult<ApiJob> prepare_chat(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  TRY(model.check_name(json));
  const ApiFields fields(json);
  const OutputFields output = TRY(read_output_fields(fields, model));
  ToolFields tools = TRY(read_tools(fields));
  const std::string note = note_of(model, output, tools);
  if (!model.chat) {
    return unsupported_field("messages", fmt::format("{}; accepted: /v1/completions, or a server with --chat-template",
                                                     model.no_chat_reason));
  }
  const std::string prompt = TRY(render_prompt(fields, model, tools));
  const std::optional<OutputGrammar> grammar = TRY(read_grammar(output, tools));

  ChatStyle style{.id = make_id("chatcmpl-"), .model = model.name, .n = output.n, .tokenizer = model.tokenizer};
  style.stream = TRY(read_stream_fields(fields));
  style.graph_info = output.return_graph_info;
  style.text = TRY(text_style(fields, model, tools, grammar.has_value(), prompt));
  std::vector<TokenId> ids = TRY(model.encode(prompt, /*add_special_tokens=*/false, "messages"));
  Request request{.prompt = std::move(ids),
                  .sampling = output.sampling,
                  .stop = output.stop,
                  .return_graph_info = output.return_graph_info,
                  .skip_special_tokens = output.skip_special_tokens,
                  .priority = output.priority,
                  .timeout_s = output.timeout_s};
  TRY(read_logprobs(fields, request.logprobs));
  style.logprobs = request.logprobs.output.has_value();
  TRY(model.set_length(request, output.max_new_tokens, model.context_length, "messages"));
  TRY(check_fan_out({request.prompt}, output.n, "n"));
  request.grammar = TRY(compile_grammar(grammar, model));
  // Some models mark their calls with special tokens.
  if (style.text.choice == ToolChoice::kAuto) request.skip_special_tokens = false;
  style.prompt_tokens = std::ssize(request.prompt);

  ApiJob job{.id = style.id, .stream = style.stream.stream, .note = note};
  append_choices(output, request, job.requests);
  job.answer = make_chat_answer(std::move(style));
  return job;
}

}  // namespace tessera
