#include "tessera/server/ollama/ollama_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace tessera {
namespace {

ApiError no_object(const std::string& param, const Json& value, std::string_view accepted) {
  return invalid_field(param,
                       fmt::format("request: field \"{}\" is {}; accepted: {}", param, shown_value(&value), accepted));
}

// Returns a message's content: the text, or a list of parts if there are images.
ApiResult<Json> content_of(const ApiFields& owner, std::string text, bool images_allowed,
                           std::vector<GivenImage>& images) {
  const Json* given = TRY(owner.array("images"));
  if (given == nullptr || given->as_array().empty()) return Json(std::move(text));
  if (!images_allowed) return owner.unsupported("images", "none, as this model reads no images");
  Json parts = Json::array();
  for (std::size_t i = 0; i < given->as_array().size(); ++i) {
    const Json& image = given->as_array()[i];
    const std::string param = fmt::format("{}[{}]", owner.param("images"), i);
    if (!image.is_string()) return no_object(param, image, "an image in base64");
    images.push_back({.text = image.as_string(), .may_be_base64 = true, .param = param});
    parts.push_back(Json::object({{"type", "image"}}));
  }
  if (!text.empty()) parts.push_back(Json::object({{"type", "text"}, {"text", std::move(text)}}));
  return parts;
}

ApiResult<Json> call_of(const Json& json, const std::string& param) {
  if (!json.is_object()) return no_object(param, json, "an object with \"function\"");
  const ApiFields call(json, param + ".");
  const Json* function_json = TRY(call.object("function"));
  if (function_json == nullptr) return call.wrong("function", "an object with \"name\" and \"arguments\"");
  const ApiFields function(*function_json, param + ".function.");
  const std::optional<std::string> name = TRY(function.string("name"));
  if (!name) return function.wrong("name", "a string");
  const Json* arguments = TRY(function.object("arguments"));
  Json out = Json::object();
  if (const std::optional<std::string> id = TRY(call.string("id"))) out.set("id", *id);
  Json made = Json::object();
  made.set("name", *name).set("arguments", arguments != nullptr ? *arguments : Json::object());
  return std::move(out.set("type", "function").set("function", std::move(made)));
}

ApiResult<Json> message_of(const ApiFields& message, const MessageKinds& kinds, std::vector<GivenImage>& images) {
  const std::string role = TRY(message.string("role")).value_or("");
  constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};
  if (std::ranges::find(kRoles, role) == std::end(kRoles))
    return message.wrong("role", "\"system\", \"user\", \"assistant\" or \"tool\"");
  Json out = Json::object();
  std::string text = TRY(message.string("content")).value_or("");
  out.set("role", role).set("content", TRY(content_of(message, std::move(text), kinds.images, images)));
  if (const Json* calls = TRY(message.array("tool_calls")); calls != nullptr && !calls->as_array().empty()) {
    Json list = Json::array();
    for (std::size_t i = 0; i < calls->as_array().size(); ++i)
      list.push_back(TRY(call_of(calls->as_array()[i], fmt::format("{}[{}]", message.param("tool_calls"), i))));
    out.set("tool_calls", std::move(list));
  }
  for (const auto& [key, name] : {std::pair("thinking", "reasoning_content"), std::pair("tool_name", "name"),
                                  std::pair("tool_call_id", "tool_call_id")}) {
    if (const std::optional<std::string> value = TRY(message.string(key))) out.set(name, *value);
  }
  return out;
}

}  // namespace

ApiResult<ChatMessages> read_ollama_messages(const ApiFields& body, const MessageKinds& kinds) {
  ChatMessages out;
  const Json* messages = TRY(body.array("messages"));
  if (messages == nullptr) return out;
  for (std::size_t i = 0; i < messages->as_array().size(); ++i) {
    const Json& message = messages->as_array()[i];
    const std::string param = fmt::format("messages[{}]", i);
    if (!message.is_object()) return no_object(param, message, "an object with \"role\" and \"content\"");
    out.list.push_back(TRY(message_of(ApiFields(message, param + "."), kinds, out.images)));
  }
  return out;
}

ApiResult<ChatMessages> read_ollama_prompt(const ApiFields& body, const MessageKinds& kinds) {
  ChatMessages out;
  if (const std::optional<std::string> system = TRY(body.string("system")); system && !system->empty())
    out.list.push_back(Json::object({{"role", "system"}, {"content", *system}}));
  std::string prompt = TRY(body.string("prompt")).value_or("");
  Json content = TRY(content_of(body, std::move(prompt), kinds.images, out.images));
  out.list.push_back(Json::object({{"role", "user"}, {"content", std::move(content)}}));
  return out;
}

ApiResult<ToolFields> read_ollama_tools(const ApiFields& body) {
  Json typed = Json::array();
  const Json* tools = TRY(body.array("tools"));
  if (tools == nullptr || tools->as_array().empty()) return ToolFields();
  for (Json tool : tools->as_array()) {
    if (tool.is_object() && tool.find("type") == nullptr) tool.set("type", "function");
    typed.push_back(std::move(tool));
  }
  const Json only = Json::object({{"tools", std::move(typed)}});
  return read_tools(ApiFields(only));
}

}  // namespace tessera
