#include "tessera/server/responses/response_head.h"

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

}  // namespace

std::string make_response_head(const ApiFields& request, const ResponseHead& head) {
  JsonWriter json;
  json.object().key("id").value(head.id).key("object").value("response").key("created_at").value(unix_time());
  json.key("model").value(head.model).key("background").value(head.background).key("store").value(head.store);
  json.key("temperature").value(head.temperature).key("top_p").value(head.top_p);
  json.key("parallel_tool_calls").value(head.parallel);
  for (const std::string_view key : {"instructions", "max_output_tokens", "max_tool_calls", "previous_response_id",
                                     "prompt_cache_key", "safety_identifier", "user"})
    repeat(json, request, key, "null");
  repeat(json, request, "metadata", "{}");
  repeat(json, request, "reasoning", R"({"effort": null, "summary": null})");
  repeat(json, request, "text", R"({"format": {"type": "text"}})");
  repeat(json, request, "tools", "[]");
  repeat(json, request, "tool_choice", R"("auto")");
  repeat(json, request, "top_logprobs", "0");
  repeat(json, request, "truncation", R"("disabled")");
  json.key("service_tier").value("default");
  return json.take();
}

}  // namespace tessera
