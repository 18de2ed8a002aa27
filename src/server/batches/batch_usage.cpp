#include "tessera/server/batches/batch_usage.h"

#include <string_view>

namespace tessera {
namespace {

// Returns the count at `key`; if it is missing, the count at `other_key`, or 0.
std::int64_t count_of(const Json& json, std::string_view key, std::string_view other_key) {
  for (const std::string_view name : {key, other_key})
    if (const Json* count = json.find(name); count != nullptr && count->is_int()) return count->as_int();
  return 0;
}

std::int64_t detail_of(const Json& json, std::string_view details, std::string_view other_details,
                       std::string_view key) {
  for (const std::string_view name : {details, other_details})
    if (const Json* found = json.find(name); found != nullptr) return count_of(*found, key, key);
  return 0;
}

}  // namespace

BatchUsage BatchUsage::read(const Json& json) {
  return {
      .input_tokens = count_of(json, "input_tokens", "prompt_tokens"),
      .cached_tokens = detail_of(json, "input_tokens_details", "prompt_tokens_details", "cached_tokens"),
      .output_tokens = count_of(json, "output_tokens", "completion_tokens"),
      .reasoning_tokens = detail_of(json, "output_tokens_details", "completion_tokens_details", "reasoning_tokens")};
}

void BatchUsage::add(const Json& answer) {
  const Json* response = answer.find("response");
  const Json* body = response == nullptr ? nullptr : response->find("body");
  const Json* usage = body == nullptr ? nullptr : body->find("usage");
  if (usage == nullptr) return;
  const BatchUsage more = read(*usage);
  input_tokens += more.input_tokens;
  cached_tokens += more.cached_tokens;
  output_tokens += more.output_tokens;
  reasoning_tokens += more.reasoning_tokens;
}

Json BatchUsage::to_json() const {
  return Json::object({{"input_tokens", input_tokens},
                       {"input_tokens_details", Json::object({{"cached_tokens", cached_tokens}})},
                       {"output_tokens", output_tokens},
                       {"output_tokens_details", Json::object({{"reasoning_tokens", reasoning_tokens}})},
                       {"total_tokens", input_tokens + output_tokens}});
}

}  // namespace tessera
