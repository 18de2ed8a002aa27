#include "tessera/server/openai/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "tessera/server/images/prompt_images.h"
#include "tessera/server/openai/chat_messages.h"
#include "tessera/server/openai/prompts.h"
#include "tessera/server/tools/generic_tools.h"
#include "tessera/server/work/text_work.h"

namespace tessera {
namespace {

// Marks the end of a message that the model is to continue. The rendered prompt is cut at the mark, as
// apply_chat_template of Hugging Face does. Templates that trim contents remove its last space.
constexpr std::string_view kEndMark = "CONTINUE_FINAL_MESSAGE_TAG ";

bool is_off(const Json& value) { return value.is_null() || value == Json(false) || value == Json("none"); }

// Sets a template variable from the request's field `key`. Any value but "off" is refused if the template does not name
// the variable, because it would have no effect.
ApiStatus set_variable(const ApiFields& fields, std::string_view key, const Json& value, const ChatTemplate& chat,
                       Json& variables) {
  if (!chat.names(key)) {
    if (is_off(value)) return api_ok();
    return fields.unsupported(key, "none: the chat template does not name it");
  }
  variables.set(std::string(key), value);
  return api_ok();
}

ApiResult<Json> read_template_variables(const ApiFields& fields, const ChatTemplate& chat) {
  Json variables = Json::object();
  if (const Json* given = TRY(fields.object("chat_template_kwargs")); given != nullptr) {
    const ApiFields inner(*given, "chat_template_kwargs.");
    for (const auto& [name, value] : given->as_object()) {
      // Other fields of the request set these variables, so they are refused here.
      for (const std::string_view own : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
        if (name == own) return fields.wrong("chat_template_kwargs", fmt::format("an object without \"{}\"", own));
      }
      TRY(set_variable(inner, name, value, chat, variables));
    }
  }
  const auto set = [&](std::string_view key, const Json& value) -> ApiStatus {
    const Json* given = fields.find("chat_template_kwargs");
    const Json* other = given != nullptr ? given->find(key) : nullptr;
    if (other == nullptr || other->is_null() || *other == value)
      return set_variable(fields, key, value, chat, variables);
    return fields.wrong(key, fmt::format("the value in \"chat_template_kwargs\", {}", shown_value(other)));
  };
  if (const auto thinking = TRY(fields.boolean("enable_thinking"))) TRY(set("enable_thinking", *thinking));
  if (const auto effort = TRY(fields.string("reasoning_effort"))) TRY(set("reasoning_effort", *effort));
  if (const Json* documents = TRY(fields.array("documents"))) TRY(set("documents", *documents));
  return variables;
}

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

ApiResult<std::string> render(const ApiFields& fields, const ServedModel& model, const ChatTemplate& chat,
                              Json messages, const ToolFields& tools, bool add_generation_prompt) {
  RenderOptions options;
  options.add_generation_prompt = add_generation_prompt;
  options.bos_token = model.bos_token;
  options.eos_token = model.eos_token;
  options.extra = TRY(read_template_variables(fields, chat));
  if (model.tool_call_parser == kGenericToolParser) {
    const bool shows_system = tools.tools.is_array() && shows_system_message(chat, options);
    messages = with_generic_tools(messages, tools, shows_system);
  } else {
    options.tools = tools.tools;
  }
  Result<std::string> prompt = chat.render(messages, options);
  if (prompt.ok()) return *std::move(prompt);
  // The work of the model's own template grows with the messages, so running out of it means a too long request. A
  // request's template may do any amount of work.
  if (prompt.status().code() == StatusCode::kResourceExhausted && fields.find("chat_template") == nullptr)
    return model.too_long("messages", prompt.status().message());
  return invalid_field("messages", prompt.status().message());
}

MessageKinds kinds_of(const ServedModel& model) {
  return {.developer = model.knows_developer, .images = model.images.has_value()};
}

// Replaces each image's placeholder in the prompt by the image's tokens.
ApiStatus add_images(const ServedModel& model, std::span<const GivenImage> given, ChatPrompt& prompt) {
  if (!model.images) return api_ok();
  const PreparedImages images = TRY(prepare_images(*model.images, given, model.context_length));
  const Status placed = place_images(*model.images, images, prompt.ids, prompt.images);
  return placed.ok() ? api_ok() : ApiStatus(invalid_field("messages", placed.message()));
}

// Whether a message's content has a part that is no text.
bool has_other_parts(const Json* messages) {
  if (messages == nullptr || !messages->is_array()) return false;
  const auto is_other = [](const Json& part) {
    const Json* type = part.is_object() ? part.find("type") : nullptr;
    return type != nullptr && type->is_string() && type->as_string() != "text";
  };
  return std::ranges::any_of(messages->as_array(), [&](const Json& message) {
    const Json* content = message.is_object() ? message.find("content") : nullptr;
    return content != nullptr && content->is_array() && std::ranges::any_of(content->as_array(), is_other);
  });
}

// Reads a request that gives ids and needs no template. Its messages are not rendered. Their images belong to the ids;
// a model without images refuses them.
ApiResult<ChatPrompt> read_ids(const ApiFields& fields, const ServedModel& model) {
  constexpr std::string_view kWithoutTemplate[] = {"chat_template",
                                                   "chat_template_kwargs",
                                                   "enable_thinking",
                                                   "reasoning_effort",
                                                   "documents",
                                                   "continue_final_message",
                                                   "echo",
                                                   "add_generation_prompt",
                                                   "add_special_tokens"};
  for (const std::string_view key : kWithoutTemplate) {
    if (fields.find(key) != nullptr) return fields.unsupported(key, "none beside \"input_ids\"");
  }
  Prompts prompts = TRY(read_prompts(fields, "input_ids", model, /*add_special_tokens=*/false));
  if (prompts.batch || fields.find("input_ids")->is_string()) return fields.wrong("input_ids", "a list of token ids");
  ChatPrompt prompt{.ids = std::move(prompts.ids[0])};
  if (model.tokenizer != nullptr) prompt.text = model.tokenizer->decode(prompt.ids, /*skip_special=*/false);
  std::vector<GivenImage> images;
  const Json* messages = fields.find("messages");
  if ((model.images && messages != nullptr) || has_other_parts(messages))
    images = TRY(read_messages(fields, kinds_of(model))).images;
  TRY(add_images(model, images, prompt));
  return prompt;
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

// Refuses texts that contain the image placeholder. Only the template may place images, because a client may pass on
// text from elsewhere.
ApiStatus check_written_placeholders(const ApiFields& fields, const ServedModel& model) {
  if (!model.images || model.images->placeholder_text.empty()) return api_ok();
  const std::string& mark = model.images->placeholder_text;
  for (const std::string key : {"messages", "tools", "chat_template_kwargs", "documents"}) {
    const Json* value = fields.find(key);
    const std::optional<std::string> path = value != nullptr ? find_text(*value, mark) : std::nullopt;
    if (!path) continue;
    return invalid_field(key + *path, fmt::format("request: field \"{}\" has \"{}\", which stands for an image; "
                                                  "accepted: texts without it, and images as parts of their own",
                                                  clip_text(key + *path), mark));
  }
  return api_ok();
}

ApiStatus check_rendered_images(const ServedModel& model, std::int64_t images, std::span<const TokenId> ids) {
  if (!model.images) return api_ok();
  const std::int64_t placeholders = count_placeholders(*model.images, ids);
  if (placeholders == images) return api_ok();
  return invalid_field("messages", fmt::format("the chat template writes {} placeholders (\"{}\") for {} images; "
                                               "accepted: a template that writes one for each",
                                               placeholders, model.images->placeholder_text, images));
}

// Returns the request's own template, or nothing.
ApiResult<std::optional<ChatTemplate>> read_template(const ApiFields& fields) {
  const std::optional<std::string> source = TRY(fields.string("chat_template"));
  if (!source) return std::optional<ChatTemplate>();
  TRY(take_on(TextWork::kLarge));  // a template may run as long as TemplateLimits allow
  Result<ChatTemplate> parsed = ChatTemplate::parse(*source, "chat_template");
  if (!parsed.ok()) return invalid_field("chat_template", parsed.status().message());
  return std::optional(*std::move(parsed));
}

}  // namespace

ApiResult<ChatPrompt> read_chat_prompt(const ApiFields& fields, const ServedModel& model, const ToolFields& tools) {
  if (fields.find("input_ids") != nullptr) return read_ids(fields, model);
  const std::optional<ChatTemplate> own = TRY(read_template(fields));
  if (!own && !model.chat) {
    return unsupported_field("messages", fmt::format("{}; accepted: /v1/completions, or a server with --chat-template",
                                                     model.no_chat_reason));
  }
  const bool native_tools = !tools.tools.is_null() && model.tool_call_parser != kGenericToolParser;
  const ChatTemplate& chat = own ? *own : native_tools && model.tool_chat ? *model.tool_chat : *model.chat;
  if (own && native_tools && !own->names("tools")) {
    return fields.unsupported("tools", "none: the request's \"chat_template\" does not name them");
  }
  ChatMessages messages = TRY(read_messages(fields, kinds_of(model)));
  TRY(check_written_placeholders(fields, model));
  const bool goes_on = TRY(fields.boolean_or("continue_final_message", false));
  const bool generation_prompt = TRY(fields.boolean_or("add_generation_prompt", !goes_on));
  if (goes_on && generation_prompt) {
    return fields.wrong("add_generation_prompt", "false where \"continue_final_message\" is true");
  }
  ChatPrompt prompt;
  if (TRY(fields.boolean_or("echo", false))) {
    const Json& last = messages.list.as_array().back();
    if (last.find("role")->as_string() != "assistant" || !last.find("content")->is_string()) {
      return fields.unsupported("echo", "false where the last message is not the assistant's, or has images");
    }
    prompt.echo = last.find("content")->as_string();
  }
  if (goes_on) prompt.begun = TRY(mark_end(messages.list));
  prompt.text = TRY(render(fields, model, chat, std::move(messages.list), tools, generation_prompt));
  if (goes_on) prompt.text = TRY(cut_at_mark(std::move(prompt.text)));
  const bool add_special = TRY(fields.boolean_or("add_special_tokens", false));
  prompt.ids = TRY(model.encode(prompt.text, add_special, "messages"));
  TRY(check_rendered_images(model, std::ssize(messages.images), prompt.ids));
  TRY(add_images(model, messages.images, prompt));
  return prompt;
}

}  // namespace tessera
