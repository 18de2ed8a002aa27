#include "tessera/server/ollama/ollama_request.h"

#include <optional>
#include <string>
#include <utility>

#include "tessera/server/fields/request_fields.h"
#include "tessera/server/ollama/ollama_answer.h"
#include "tessera/server/ollama/ollama_fields.h"
#include "tessera/server/ollama/ollama_messages.h"
#include "tessera/server/openai/chat_text_style.h"
#include "tessera/server/openai/conversation_prompt.h"

namespace tessera {
namespace {

ApiResult<OllamaStyle> read_style(const ApiFields& fields, const ServedModel& model, bool chat) {
  OllamaStyle style{.model = model.name, .chat = chat, .tokenizer = model.tokenizer};
  style.stream = TRY(fields.boolean_or("stream", true));
  style.interval = model.stream_interval;
  return style;
}

// Reads "logprobs" and "top_logprobs".
ApiResult<std::optional<int>> read_top(const ApiFields& fields) {
  const bool wanted = TRY(fields.boolean_or("logprobs", false));
  const std::optional<std::int64_t> top = TRY(fields.integer("top_logprobs", 0, kMaxTopLogprobs));
  if (top && *top > 0 && !wanted) return fields.wrong("top_logprobs", "0 where \"logprobs\" is not true");
  return wanted ? std::optional(static_cast<int>(top.value_or(0))) : std::nullopt;
}

ApiJob job_of(OllamaStyle style) {
  ApiJob job{.id = make_id("ollama-"), .stream = style.stream};
  job.answer = make_ollama_answer(std::move(style));
  return job;
}

ApiJob load_job(OllamaStyle style) {
  style.is_load = true;
  return job_of(std::move(style));
}

// Makes the job of a text prompt. `style` says which route the answer is for.
ApiResult<ApiJob> text_job(const ApiFields& fields, const ServedModel& model, const OutputFields& output,
                           ChatPrompt prompt, OllamaStyle style) {
  Request request{.prompt = std::move(prompt.ids),
                  .images = std::move(prompt.images),
                  .sampling = output.sampling,
                  .stop = output.stop,
                  .skip_special_tokens = !needs_special_tokens(style.text),
                  .branch_tokens = std::move(prompt.branch_tokens)};
  request.logprobs.output = TRY(read_top(fields));
  style.logprobs = request.logprobs.output.has_value();
  TRY(model.set_length(request, output.max_new_tokens, model.context_length, style.chat ? "messages" : "prompt"));
  request.grammar = TRY(compile_grammar(output.grammar, output, model));
  ApiJob job = job_of(std::move(style));
  job.requests.push_back(std::move(request));
  // A plugin's parser may have failed when it began. This is checked before the engine gets the request.
  if (const Status failure = job.answer->failure(); !failure.ok()) return api_error(failure);
  return job;
}

constexpr std::string_view kChatTexts[] = {"messages", "tools"};
constexpr std::string_view kPromptTexts[] = {"system", "prompt"};

// Returns whether the last message is the beginning of an assistant's message, which the model continues.
bool ends_with_beginning(const Json& messages) {
  const Json& last = messages.as_array().back();
  const Json& content = *last.find("content");
  return last.find("role")->as_string() == "assistant" && last.find("tool_calls") == nullptr && content.is_string() &&
         !content.as_string().empty();
}

}  // namespace

ApiResult<ApiJob> prepare_ollama_chat(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_ollama_request(model, fields, request_object::kOllamaChat, &ServedModel::check_generates));
  const OutputFields output = TRY(read_ollama_output(fields, model));
  OllamaStyle style = TRY(read_style(fields, model, /*chat=*/true));
  Conversation conversation;
  conversation.messages = TRY(read_ollama_messages(fields, kinds_of(model)));
  conversation.tools = TRY(read_ollama_tools(fields));
  if (conversation.messages.list.as_array().empty()) return load_job(std::move(style));
  const std::string note = withdraw_generic_tools(model, output.grammar.has_value(), conversation.tools);
  conversation.chat = template_of(model, conversation.tools.tools);
  if (conversation.chat == nullptr) return no_template(model);
  conversation.variables = TRY(read_think(fields, model, *conversation.chat));
  conversation.continues = ends_with_beginning(conversation.messages.list);
  conversation.generation_prompt = !conversation.continues;
  TRY(check_written_placeholders(fields, model, kChatTexts));
  const ToolFields tools = conversation.tools;
  ChatPrompt prompt = TRY(make_prompt(model, std::move(conversation)));
  style.text = TRY(text_style_of(model, tools, prompt, output.grammar.has_value(), /*separate=*/true));
  ApiJob job = TRY(text_job(fields, model, output, std::move(prompt), std::move(style)));
  job.note = note;
  return job;
}

ApiResult<ApiJob> prepare_ollama_generate(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_ollama_request(model, fields, request_object::kOllamaGenerate, &ServedModel::check_generates));
  const OutputFields output = TRY(read_ollama_output(fields, model));
  OllamaStyle style = TRY(read_style(fields, model, /*chat=*/false));
  const std::string text = TRY(fields.string("prompt")).value_or("");
  if (text.empty()) return load_job(std::move(style));
  ChatPrompt prompt;
  if (TRY(fields.boolean_or("raw", false)) || !model.chat) {
    for (const char* key : {"system", "images", "think"}) {
      const Json* value = fields.find(key);
      const bool is_off = value == nullptr || *value == Json("") || *value == Json(false) || *value == Json::array();
      if (!is_off) return fields.unsupported(key, "none for a prompt that no chat template renders");
    }
    prompt.text = text;
    prompt.ids = TRY(model.encode(text, /*add_special_tokens=*/true, "prompt"));
  } else {
    Conversation conversation{.messages = TRY(read_ollama_prompt(fields, kinds_of(model))), .chat = &*model.chat};
    conversation.variables = TRY(read_think(fields, model, *model.chat));
    TRY(check_written_placeholders(fields, model, kPromptTexts));
    prompt = TRY(make_prompt(model, std::move(conversation)));
    style.text = TRY(text_style_of(model, {}, prompt, output.grammar.has_value(), /*separate=*/true));
  }
  return text_job(fields, model, output, std::move(prompt), std::move(style));
}

}  // namespace tessera
