#include "tessera/server/anthropic/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/server/anthropic/message_answer.h"
#include "tessera/server/anthropic/message_tools.h"
#include "tessera/server/anthropic/message_turns.h"
#include "tessera/server/anthropic/system_turns.h"
#include "tessera/server/anthropic/thinking_fields.h"
#include "tessera/server/fields/prompts.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/openai/chat_text_style.h"
#include "tessera/server/openai/conversation_prompt.h"
#include "tessera/server/openai/sampling_fields.h"

namespace tessera {
namespace {

constexpr std::string_view kTooLong = "prompt is too long: ";  // agents know this text and shorten the conversation

ApiResult<std::string> read_model(const ApiFields& fields) {
  const std::optional<std::string> name = TRY(fields.string("model"));
  if (!name || name->empty()) return fields.wrong("model", "a string");
  return *name;
}

// Reads "output_config.format": {"type": "json_schema", "schema": …}.
ApiResult<std::optional<OutputGrammar>> read_format(const ApiFields& body) {
  std::optional<OutputGrammar> none;
  const Json* config = TRY(body.object("output_config"));
  if (config == nullptr) return none;
  const Json* format = TRY(ApiFields(*config, "output_config.").object("format"));
  if (format == nullptr) return none;
  const ApiFields fields(*format, "output_config.format.");
  if (TRY(fields.string("type")) != "json_schema") return fields.unsupported("type", "\"json_schema\"");
  const Json* schema = TRY(fields.object("schema"));
  if (schema == nullptr) return fields.wrong("schema", "a JSON schema");
  return std::optional(OutputGrammar{.spec = {.kind = GrammarSpec::Kind::kJsonSchema, .text = schema->dump()},
                                     .param = fields.param("schema")});
}

// Reads the fields for sampling, for stopping, for the prefix cache and for the output's format. The fields for
// sampling and for the prefix cache have the same names and meanings as in OpenAI's protocol. The field
// "stop_sequences" is OpenAI's "stop".
ApiResult<OutputFields> read_output(const ApiFields& fields, const ServedModel& model) {
  Json shared = Json::object();
  for (const char* key :
       {"temperature", "top_p", "top_k", "max_tokens", "seed", "session_id", "retention_seconds", "cache_priority"})
    if (const Json* value = fields.find(key)) shared.set(key, *value);
  if (shared.find("max_tokens") == nullptr) return fields.wrong("max_tokens", "a number of tokens, which is required");
  OutputFields out = TRY(read_output_fields(ApiFields(shared), model));
  out.stop.texts = TRY(fields.strings("stop_sequences"));
  if (out.stop.texts.size() > kMaxStopTexts)
    return fields.wrong("stop_sequences", fmt::format("at most {} strings", kMaxStopTexts));
  for (const std::string& text : out.stop.texts)
    if (text.empty()) return fields.wrong("stop_sequences", "strings that are not empty");
  out.grammar = TRY(read_format(fields));
  return out;
}

// Rewords an error of make_prompt() for clients of this protocol. An error about continue_final_message, a field that
// Messages requests lack, names "messages" instead. The message about a prompt that is too long begins with kTooLong,
// by which agents recognise it.
ApiError in_known_words(ApiError error) {
  if (error.param == "continue_final_message") {
    return unsupported_field("messages",
                             "the chat template cannot continue the assistant's last message; accepted: a last "
                             "message of the user");
  }
  if (error.code == "context_length_exceeded") error.message = std::string(kTooLong) + error.message;
  return error;
}

ApiResult<ChatPrompt> read_prompt(const ApiFields& fields, const ServedModel& model, const MessageTools& tools,
                                  const ThinkingFields& thinking) {
  Conversation conversation{.tools = tools.shown, .chat = template_of(model, tools.shown.tools)};
  if (conversation.chat == nullptr) return no_template(model);
  constexpr std::string_view kTexts[] = {"system", "messages", "tools"};
  TRY(check_written_placeholders(fields, model, kTexts));
  conversation.variables = thinking_variables(thinking, *conversation.chat);
  conversation.messages = TRY(read_turns(fields, tools, model.images.has_value()));
  Json& turns = conversation.messages.list;
  const RenderOptions options =
      render_options(model, tools.shown.tools, conversation.variables, /*generation_prompt=*/true);
  const SystemPlaces places = find_system_places(turns, *conversation.chat, options);
  turns = fit_turns(std::move(turns), places);
  const Json& last = turns.as_array().back();
  conversation.continues = last.find("role")->as_string() == "assistant";
  conversation.generation_prompt = !conversation.continues;
  if (conversation.continues && last.find("tool_calls") != nullptr) {
    return invalid_field("messages",
                         "request: field \"messages\" ends with tool_use blocks; accepted: a last message with their "
                         "tool_result blocks");
  }
  ApiResult<ChatPrompt> prompt = make_prompt(model, std::move(conversation));
  if (!prompt.ok()) return in_known_words(std::move(prompt.error()));
  return prompt;
}

// Sets how many tokens may follow the prompt: `max_tokens`, or fewer if the context has less room.
ApiStatus set_length(const ServedModel& model, std::int64_t max_tokens, Request& request) {
  const std::int64_t left = model.context_length - std::ssize(request.prompt);
  if (left < 0 || (left == 0 && max_tokens > 0)) {
    ApiError error = invalid_field(
        "messages", fmt::format("{}{} tokens > {} maximum", kTooLong, request.prompt.size(), model.context_length));
    error.code = "context_length_exceeded";
    return error;
  }
  return model.set_length(request, std::min(max_tokens, left), model.context_length, "messages");
}

// The parts of a request that prepare_messages() and count_tokens_body() both read.
struct MessagesPrompt {
  MessageTools tools{};
  ThinkingFields thinking{};
  ChatPrompt prompt{};
  std::string note{};
};

ApiResult<MessagesPrompt> read_messages_prompt(const ApiFields& fields, const ServedModel& model, bool constrained) {
  MessagesPrompt out;
  out.tools = TRY(read_message_tools(fields));
  out.note = withdraw_generic_tools(model, constrained, out.tools.called);
  if (out.tools.called.tools.is_null()) out.tools.shown = out.tools.called;
  if (const std::string unavailable = note_of_unavailable(out.tools); !unavailable.empty())
    out.note += (out.note.empty() ? "" : "; ") + unavailable;
  out.thinking = TRY(read_thinking(fields));
  const ToolChoice choice = out.tools.called.choice;
  // A grammar applies from the first token on, so it leaves no room for thinking.
  if (constrained || choice == ToolChoice::kRequired || choice == ToolChoice::kNamed) out.thinking.on = false;
  out.prompt = TRY(read_prompt(fields, model, out.tools, out.thinking));
  return out;
}

// Returns the grammar that "tool_choice" requires, or else the grammar of "output_config". Error: the request has both.
ApiResult<std::optional<OutputGrammar>> grammar_of(const OutputFields& output, const ToolFields& tools) {
  std::optional<OutputGrammar> grammar = TRY(tool_grammar(tools));
  if (!grammar) return output.grammar;
  if (output.grammar) {
    return unsupported_field(output.grammar->param,
                             R"("tool_choice" constrains the output already; accepted: "auto" or "none")");
  }
  return grammar;
}

}  // namespace

ApiResult<ApiJob> prepare_messages(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kMessages, model.allow_unknown_fields));
  TRY(check_attached(fields, "metadata"));
  TRY(model.check_generates());
  std::string name = TRY(read_model(fields));
  std::string adapter = model.adapter_of(name);
  MessageStyle style{.id = make_id("msg_"), .model = std::move(name), .interval = model.stream_interval};
  style.stream = TRY(fields.boolean_or("stream", false));
  const OutputFields output = TRY(read_output(fields, model));
  MessagesPrompt read = TRY(read_messages_prompt(fields, model, output.grammar.has_value()));
  const std::optional<OutputGrammar> grammar = TRY(grammar_of(output, read.tools.called));
  style.text = TRY(text_style_of(model, read.tools.called, read.prompt, grammar.has_value(), /*separate=*/true));
  style.text.id_prefix = "toolu_";
  style.shows_thinking = read.thinking.on;
  style.omits_thinking = read.thinking.omitted;
  style.lists_edits = fields.find("context_management") != nullptr;

  Request request{.prompt = std::move(read.prompt.ids),
                  .images = std::move(read.prompt.images),
                  .sampling = output.sampling,
                  .stop = output.stop,
                  .adapter = std::move(adapter),
                  .retention = output.retention,
                  .branch_tokens = std::move(read.prompt.branch_tokens)};
  if (read.thinking.on && read.thinking.budget)
    request.reasoning_limit = limit_reasoning(model, style.text, *read.thinking.budget);
  TRY(set_length(model, *output.max_new_tokens, request));
  TRY(FanOut().add(/*n=*/1, std::ssize(request.prompt), "messages"));
  request.grammar = TRY(compile_grammar(grammar, output, model));
  if (needs_special_tokens(style.text)) request.skip_special_tokens = false;
  style.prompt_tokens = std::ssize(request.prompt);
  style.ends_with_context = request.stop.max_new_tokens < *output.max_new_tokens;

  ApiJob job{.id = style.id, .stream = style.stream, .note = std::move(read.note)};
  job.requests.push_back(std::move(request));
  job.answer = make_message_answer(std::move(style));
  // A plugin's parser may have failed when it began. This is checked before the engine gets the request.
  if (const Status failure = job.answer->failure(); !failure.ok()) return api_error(failure);
  return job;
}

ApiResult<std::string> count_tokens_body(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kCountTokens, model.allow_unknown_fields));
  TRY(model.check_generates());
  TRY(read_model(fields));
  const bool constrained = TRY(read_format(fields)).has_value();
  const MessagesPrompt read = TRY(read_messages_prompt(fields, model, constrained));
  return fmt::format("{{\"input_tokens\":{}}}", read.prompt.ids.size());
}

}  // namespace tessera
