#include "tessera/server/openai/conversation_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/server/images/prompt_images.h"
#include "tessera/server/openai/branch_tokens.h"
#include "tessera/server/openai/join_turns.h"
#include "tessera/server/tools/call_arguments.h"
#include "tessera/server/tools/generic_tools.h"

namespace tessera {
namespace {

// Marks the end of a message that the model is to continue. The rendered prompt is cut at the mark, as in Hugging
// Face's apply_chat_template. The mark ends with a space, which shows whether the template trims the content. If the
// space is missing in the prompt, the template has trimmed the content, so the white space in front of the mark is
// removed as well.
constexpr std::string_view kEndMark = "CONTINUE_FINAL_MESSAGE_TAG ";

// Appends kEndMark to the last message's content. Returns the content without the mark.
ApiResult<std::string> mark_end(Json& messages) {
  Json& last = messages.as_array().back();
  const Json& content = *last.find("content");
  if (last.find("role")->as_string() != "assistant" || last.find("tool_calls") != nullptr || !content.is_string()) {
    return invalid_field("continue_final_message",
                         "request: field \"continue_final_message\" is true; accepted: false, where the last message "
                         "is not the assistant's, or has tool calls or images");
  }
  const std::string text = content.as_string();
  last.set("content", text + std::string(kEndMark));
  return text;
}

ApiResult<std::string> cut_at_mark(std::string prompt) {
  const std::string_view trimmed = kEndMark.substr(0, kEndMark.size() - 1);
  const std::size_t at = prompt.rfind(trimmed);
  if (at == std::string::npos) {
    return unsupported_field("continue_final_message",
                             "the chat template does not print the text of the last message; accepted: false");
  }
  const bool is_whole = prompt.compare(at, kEndMark.size(), kEndMark) == 0;
  prompt.resize(at);
  if (!is_whole) prompt.resize(prompt.find_last_not_of(" \t\r\n\f\v") + 1);
  return prompt;
}

// Returns the name of the request field that a rendering error should name.
std::string field_of(const Conversation& conversation) {
  return conversation.own_template ? "chat_template" : "messages";
}

bool is_generic(const ServedModel& model) { return model.tool_call_parser == kGenericToolParser; }

// Renders the messages. If the template fails, renders the arguments of broken calls as objects. If it still fails,
// also joins adjacent turns of one role.
Result<std::string> render_in_some_form(const ChatTemplate& chat, Json messages, const RenderOptions& options) {
  Result<std::string> prompt = chat.render(messages, options);
  const auto refuses = [&] { return !prompt.ok() && prompt.status().code() != StatusCode::kResourceExhausted; };
  if (!refuses()) return prompt;
  if (std::optional<Json> other = with_argument_objects(messages)) {
    messages = *std::move(other);
    prompt = chat.render(messages, options);
  }
  if (!refuses()) return prompt;
  const std::size_t count = messages.as_array().size();
  const Json joined = join_turns(std::move(messages));
  return joined.as_array().size() < count ? chat.render(joined, options) : prompt;
}

ApiResult<std::string> render(const ServedModel& model, Conversation& conversation) {
  const RenderOptions options =
      render_options(model, conversation.tools.tools, conversation.variables, conversation.generation_prompt);
  Json messages = std::move(conversation.messages.list);
  if (is_generic(model)) {
    const bool shows_system = conversation.tools.tools.is_array() && shows_system_message(*conversation.chat, options);
    messages = with_generic_tools(messages, conversation.tools, shows_system);
  }
  Result<std::string> prompt = render_in_some_form(*conversation.chat, std::move(messages), options);
  if (prompt.ok()) return *std::move(prompt);
  // If the model's own template exceeds its work limit, the messages are too long, because the template's work grows
  // with the messages. A template that the request brought may exceed the limit with messages of any length.
  if (prompt.status().code() == StatusCode::kResourceExhausted && !conversation.own_template)
    return model.too_long("messages", prompt.status().message());
  return invalid_field(field_of(conversation), prompt.status().message());
}

// Returns the path of the first text in `value` that contains `mark`; nothing if there is none.
std::optional<std::string> find_text(const Json& value, std::string_view mark) {
  if (value.is_string()) return value.as_string().find(mark) != std::string::npos ? std::optional("") : std::nullopt;
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.as_array().size(); ++i)
      if (const auto path = find_text(value.as_array()[i], mark)) return fmt::format("[{}]{}", i, *path);
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.as_object())
      if (const auto path = find_text(member, mark)) return fmt::format(".{}{}", key, *path);
  }
  return std::nullopt;
}

// Returns whether the model has said nothing yet.
bool is_new_conversation(const Json& messages) {
  return std::ranges::none_of(messages.as_array(),
                              [](const Json& message) { return message.find("role")->as_string() == "assistant"; });
}

ApiStatus check_rendered_images(const ServedModel& model, const Conversation& conversation, std::int64_t images,
                                std::span<const TokenId> ids) {
  if (!model.images) return api_ok();
  const std::int64_t placeholders = count_placeholders(*model.images, ids);
  if (placeholders == images) return api_ok();
  return invalid_field(field_of(conversation), fmt::format("the chat template writes {} placeholders (\"{}\") for {} "
                                                           "images; accepted: a template that writes one for each",
                                                           placeholders, model.images->placeholder_text, images));
}

}  // namespace

const ChatTemplate* template_of(const ServedModel& model, const Json& tools) {
  if (!model.chat) return nullptr;
  return !tools.is_null() && !is_generic(model) && model.tool_chat ? &*model.tool_chat : &*model.chat;
}

ApiError no_template(const ServedModel& model) {
  return unsupported_field(
      "messages", fmt::format("{}; accepted: /v1/completions, or a server with --chat-template", model.no_chat_reason));
}

MessageKinds kinds_of(const ServedModel& model) {
  return {.developer = model.knows_developer, .images = model.images.has_value()};
}

ApiStatus add_images(const ServedModel& model, std::span<const GivenImage> given, ChatPrompt& prompt) {
  if (!model.images) return api_ok();
  const PreparedImages images = TRY(prepare_images(*model.images, given, model.context_length));
  const Status placed = place_images(*model.images, images, prompt.ids, prompt.images);
  return placed.ok() ? api_ok() : ApiStatus(invalid_field("messages", placed.message()));
}

ApiStatus check_written_placeholders(const ApiFields& fields, const ServedModel& model,
                                     std::span<const std::string_view> keys) {
  if (!model.images || model.images->placeholder_text.empty()) return api_ok();
  const std::string& mark = model.images->placeholder_text;
  for (const std::string_view key : keys) {
    const Json* value = fields.find(key);
    const std::optional<std::string> path = value != nullptr ? find_text(*value, mark) : std::nullopt;
    if (!path) continue;
    const std::string param = std::string(key) + *path;
    return invalid_field(param, fmt::format("request: field \"{}\" has \"{}\", which stands for an image; "
                                            "accepted: texts without it, and images as parts of their own",
                                            clip_text(param), mark));
  }
  return api_ok();
}

RenderOptions render_options(const ServedModel& model, const Json& tools, const Json& variables,
                             bool generation_prompt) {
  RenderOptions options;
  options.add_generation_prompt = generation_prompt;
  options.bos_token = model.bos_token;
  options.eos_token = model.eos_token;
  options.extra = variables;
  if (!is_generic(model)) options.tools = tools;
  return options;
}

ApiResult<ChatPrompt> make_prompt(const ServedModel& model, Conversation conversation) {
  const std::vector<GivenImage> images = std::move(conversation.messages.images);
  const bool is_new = is_new_conversation(conversation.messages.list);
  ChatPrompt prompt;
  if (conversation.continues) prompt.begun = TRY(mark_end(conversation.messages.list));
  prompt.text = TRY(render(model, conversation));
  if (conversation.continues) prompt.text = TRY(cut_at_mark(std::move(prompt.text)));
  prompt.ids = TRY(model.encode(prompt.text, conversation.add_special_tokens, field_of(conversation)));
  TRY(check_rendered_images(model, conversation, std::ssize(images), prompt.ids));
  TRY(add_images(model, images, prompt));
  if (model.message_start) prompt.branch_tokens = find_branch_tokens(prompt.ids, *model.message_start, is_new);
  return prompt;
}

}  // namespace tessera
