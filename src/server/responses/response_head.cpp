#include "tessera/server/responses/response_head.h"

#include <initializer_list>
#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/fields/json_writer.h"

namespace tessera {
namespace {

// Writes the request's field `key`. If the field is absent, writes `otherwise`, which is JSON text.
void repeat(JsonWriter& json, const ApiFields& request, std::string_view key, std::string_view otherwise) {
  json.key(key);
  if (const Json* value = request.find(key); value != nullptr) {
    json.value(*value);
  } else {
    json.raw(otherwise);
  }
}

// Returns `object` with null for each member of `keys` that it lacks. Clients expect these members in an answer.
Json completed(Json object, std::initializer_list<const char*> keys) {
  for (const char* const key : keys)
    if (object.find(key) == nullptr) object.set(key, nullptr);
  return object;
}

// Returns the tools of a request as an answer repeats them.
Json repeated_tools(const Json& tools) {
  Json out = Json::array();
  for (const Json& tool : tools.as_array()) {
    const Json* type = tool.find("type");
    if (type != nullptr && *type == Json("function")) {
      out.push_back(completed(tool, {"description", "parameters", "strict"}));
    } else if (const Json* nested = tool.find("tools"); nested != nullptr && nested->is_array()) {
      out.push_back(tool);
      out.as_array().back().set("tools", repeated_tools(*nested));
    } else {
      out.push_back(tool);
    }
  }
  return out;
}

// Returns the object `text` of a request as an answer repeats it.
Json repeated_text(Json text) {
  const Json* format = text.find("format");
  if (format == nullptr || format->is_null()) {
    text.set("format", Json::object({{"type", "text"}}));
  } else if (*format->find("type") == Json("json_schema")) {
    text.set("format", completed(*format, {"description", "strict"}));
  }
  return text;
}

}  // namespace

std::string make_response_head(const ApiFields& request, const ResponseHead& head) {
  JsonWriter json;
  json.object().key("id").value(head.id).key("object").value("response").key("created_at").value(unix_time());
  json.key("model").value(head.model).key("background").value(head.background).key("store").value(head.store);
  json.key("temperature").value(head.temperature).key("top_p").value(head.top_p);
  json.key("presence_penalty").value(head.presence_penalty);
  json.key("frequency_penalty").value(head.frequency_penalty);
  json.key("parallel_tool_calls").value(head.parallel);
  for (const std::string_view key : {"instructions", "max_output_tokens", "max_tool_calls", "previous_response_id",
                                     "prompt_cache_key", "safety_identifier", "user"})
    repeat(json, request, key, "null");
  repeat(json, request, "metadata", "{}");
  const Json* reasoning = request.find("reasoning");
  json.key("reasoning").value(completed(reasoning != nullptr ? *reasoning : Json::object(), {"effort", "summary"}));
  const Json* text = request.find("text");
  json.key("text").value(repeated_text(text != nullptr ? *text : Json::object()));
  const Json* tools = request.find("tools");
  json.key("tools").value(tools != nullptr ? repeated_tools(*tools) : Json::array());
  repeat(json, request, "tool_choice", R"("auto")");
  repeat(json, request, "top_logprobs", "0");
  repeat(json, request, "truncation", R"("disabled")");
  json.key("service_tier").value("default");
  return json.take();
}

}  // namespace tessera
