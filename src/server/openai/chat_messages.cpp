#include "tessera/server/openai/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/server/images/content_parts.h"
#include "tessera/server/tools/call_arguments.h"

namespace tessera {
namespace {

// Returns the path of a message: "messages[3].".
std::string prefix_of(std::size_t index) { return fmt::format("messages[{}].", index); }

ApiResult<Json> read_tool_call(const Json& json, const std::string& param) {
  if (!json.is_object()) {
    return invalid_field(param,
                         fmt::format("request: field \"{}\" is {}; accepted: an object", param, shown_value(&json)));
  }
  const ApiFields call(json, param + ".");
  const std::string type = TRY(call.string("type")).value_or("function");
  if (type != "function") return call.unsupported("type", "\"function\"");
  const Json* function_json = TRY(call.object("function"));
  if (function_json == nullptr) return call.wrong("function", "an object with \"name\" and \"arguments\"");
  const ApiFields function(*function_json, param + ".function.");
  std::optional<std::string> name = TRY(function.string("name"));
  if (!name) return function.wrong("name", "a string");
  Json arguments = TRY(read_call_arguments(function));

  Json out = Json::object();
  if (const std::optional<std::string> id = TRY(call.string("id"))) out.set("id", *id);
  Json out_function = Json::object();
  out_function.set("name", *std::move(name)).set("arguments", std::move(arguments));
  out.set("type", "function").set("function", std::move(out_function));
  return out;
}

ApiResult<Json> read_tool_calls(const ApiFields& message) {
  const Json* calls = TRY(message.array("tool_calls"));
  Json out = Json::array();
  if (calls == nullptr) return out;
  for (std::size_t i = 0; i < calls->as_array().size(); ++i) {
    out.push_back(TRY(read_tool_call(calls->as_array()[i], fmt::format("{}[{}]", message.param("tool_calls"), i))));
  }
  return out;
}

ApiResult<Json> read_message(const ApiFields& message, const MessageKinds& kinds, std::vector<GivenImage>& images) {
  std::string role = TRY(message.string("role")).value_or("");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
    return message.wrong("role", "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"");
  }
  if (message.find("function_call") != nullptr) return message.unsupported("function_call", "\"tool_calls\" instead");
  if (message.find("audio") != nullptr) return message.unsupported("audio", "none");
  const bool assistant = role == "assistant";
  Json calls = assistant ? TRY(read_tool_calls(message)) : Json::array();
  const bool has_calls = !calls.as_array().empty();
  const Json* given = message.find("content");
  Json content = given == nullptr && has_calls ? Json("") : TRY(read_content(message, kinds.images, images));
  if (role == "developer" && !kinds.developer) role = "system";

  Json out = Json::object();
  out.set("role", role).set("content", std::move(content));
  if (has_calls) out.set("tool_calls", std::move(calls));
  for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
    if (const std::optional<std::string> value = TRY(message.string(key))) out.set(key, *value);
  }
  return out;
}

}  // namespace

ApiResult<Json> read_call_arguments(const ApiFields& call) {
  const Json* arguments = call.find("arguments");
  if (arguments == nullptr) return Json::object();
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string()) return call.wrong("arguments", "the JSON text of an object");
  return shown_arguments(arguments->as_string());
}

ApiResult<ChatMessages> read_messages(const ApiFields& body, const MessageKinds& kinds) {
  const Json* messages = TRY(body.array("messages"));
  if (messages == nullptr || messages->as_array().empty()) {
    return body.wrong("messages", "a list of at least one message");
  }
  ChatMessages out;
  bool has_calls = false;  // a message so far has calls
  for (std::size_t i = 0; i < messages->as_array().size(); ++i) {
    const Json& message = messages->as_array()[i];
    if (!message.is_object()) {
      return invalid_field(fmt::format("messages[{}]", i),
                           fmt::format("request: field \"messages[{}]\" is {}; accepted: an object with \"role\" and "
                                       "\"content\"",
                                       i, shown_value(&message)));
    }
    const ApiFields fields(message, prefix_of(i));
    Json read = TRY(read_message(fields, kinds, out.images));
    has_calls = has_calls || read.find("tool_calls") != nullptr;
    if (!has_calls && *read.find("role") == Json("tool"))
      return fields.wrong("role", R"("tool" only after a message with "tool_calls")");
    out.list.push_back(std::move(read));
  }
  return out;
}

}  // namespace tessera
