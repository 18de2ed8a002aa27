#include "tessera/server/openai/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/server/fields/prompts.h"
#include "tessera/server/openai/reasoning_field.h"
#include "tessera/server/tools/generic_tools.h"
#include "tessera/server/work/text_work.h"

namespace tessera {
namespace {

bool is_off(const Json& value) { return value.is_null() || value == Json(false) || value == Json("none"); }

// Sets a template variable from the request's field `key`. If the template does not name the variable, every value of
// the field except null, false and "none" is an error, because the field would have no effect.
ApiStatus set_variable(const ApiFields& fields, std::string_view key, const Json& value, const ChatTemplate& chat,
                       Json& variables) {
  if (!chat.names(key)) {
    if (is_off(value)) return api_ok();
    return fields.unsupported(key, "none: the chat template does not name it");
  }
  variables.set(std::string(key), value);
  return api_ok();
}

// Adds the variables of "reasoning" to the variables that the request's other fields set. Returns an error if a
// variable would get two different values.
ApiStatus add_reasoning(const ApiFields& fields, const ChatTemplate& chat, Json& variables) {
  const Json reasoning = TRY(reasoning_variables(fields, chat));
  for (const auto& [name, value] : reasoning.as_object()) {
    const Json* other = variables.find(name);
    if (other != nullptr && *other != value)
      return ApiFields(*fields.find("reasoning"), "reasoning.")
          .wrong("effort", fmt::format("the value of \"{}\", {}", name, shown_value(other)));
    variables.set(name, value);
  }
  TRY(wants_reasoning_summary(fields));  // called only to refuse wrong values, because a chat has no summary
  return api_ok();
}

ApiResult<Json> read_template_variables(const ApiFields& fields, const ChatTemplate& chat) {
  Json variables = Json::object();
  if (const Json* given = TRY(fields.object("chat_template_kwargs")); given != nullptr) {
    const ApiFields inner(*given, "chat_template_kwargs.");
    for (const auto& [name, value] : given->as_object()) {
      // Refuses variables that the server itself sets, from the model or from other fields of the request.
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
  TRY(add_reasoning(fields, chat, variables));
  if (const Json* documents = TRY(fields.array("documents"))) TRY(set("documents", *documents));
  return variables;
}

// Returns whether a message's content has a part other than text.
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

// Reads a request that gives token ids and therefore needs no template. The request's messages are not rendered. Only
// their images are read, because the ids contain placeholders for images. If the model reads no images, images are an
// error.
ApiResult<ChatPrompt> read_ids(const ApiFields& fields, const ServedModel& model) {
  constexpr std::string_view kWithoutTemplate[] = {"chat_template",
                                                   "chat_template_kwargs",
                                                   "enable_thinking",
                                                   "reasoning_effort",
                                                   "reasoning",
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

// Returns the request's own template, or nothing.
ApiResult<std::optional<ChatTemplate>> read_template(const ApiFields& fields) {
  const std::optional<std::string> source = TRY(fields.string("chat_template"));
  if (!source) return std::optional<ChatTemplate>();
  // Rendering a client's template may run until TemplateLimits stop it, so rendering belongs in the pool for large
  // work.
  TRY(take_on(TextWork::kLarge));
  Result<ChatTemplate> parsed = ChatTemplate::parse(*source, "chat_template");
  if (!parsed.ok()) return invalid_field("chat_template", parsed.status().message());
  return std::optional(*std::move(parsed));
}

}  // namespace

ApiResult<ChatPrompt> read_chat_prompt(const ApiFields& fields, const ServedModel& model, const ToolFields& tools) {
  if (fields.find("input_ids") != nullptr) return read_ids(fields, model);
  const std::optional<ChatTemplate> own = TRY(read_template(fields));
  if (!own && !model.chat) return no_template(model);
  const bool native_tools = !tools.tools.is_null() && model.tool_call_parser != kGenericToolParser;
  Conversation conversation{
      .tools = tools, .chat = own ? &*own : template_of(model, tools.tools), .own_template = own.has_value()};
  if (own && native_tools && !own->names("tools")) {
    return fields.unsupported("tools", "none: the request's \"chat_template\" does not name them");
  }
  conversation.messages = TRY(read_messages(fields, kinds_of(model)));
  constexpr std::string_view kTexts[] = {"messages", "tools", "chat_template_kwargs", "documents"};
  TRY(check_written_placeholders(fields, model, kTexts));
  conversation.continues = TRY(fields.boolean_or("continue_final_message", false));
  conversation.generation_prompt = TRY(fields.boolean_or("add_generation_prompt", !conversation.continues));
  if (conversation.continues && conversation.generation_prompt) {
    return fields.wrong("add_generation_prompt", "false where \"continue_final_message\" is true");
  }
  std::string echo;
  if (TRY(fields.boolean_or("echo", false))) {
    const Json& last = conversation.messages.list.as_array().back();
    if (last.find("role")->as_string() != "assistant" || !last.find("content")->is_string()) {
      return fields.unsupported("echo", "false where the last message is not the assistant's, or has images");
    }
    echo = last.find("content")->as_string();
  }
  conversation.variables = TRY(read_template_variables(fields, *conversation.chat));
  conversation.add_special_tokens = TRY(fields.boolean_or("add_special_tokens", false));
  ChatPrompt prompt = TRY(make_prompt(model, std::move(conversation)));
  prompt.echo = std::move(echo);
  return prompt;
}

}  // namespace tessera
