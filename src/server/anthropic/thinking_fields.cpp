#include "tessera/server/anthropic/thinking_fields.h"

#include <fmt/format.h>

#include <limits>

#include "tessera/server/anthropic/content_blocks.h"

namespace tessera {
namespace {

ApiStatus read_effort(const ApiFields& holder, ThinkingFields& out) {
  const Json* config = TRY(holder.object("output_config"));
  if (config == nullptr) return api_ok();
  const ApiFields fields(*config, holder.param("output_config."));
  const std::optional<std::string> effort = TRY(fields.string("effort"));
  if (!effort) return api_ok();
  if (*effort == "low" || *effort == "medium" || *effort == "high") {
    out.effort = effort;
  } else if (*effort == "xhigh" || *effort == "max") {
    out.effort = "high";
  } else {
    return fields.wrong("effort", R"("low", "medium", "high", "xhigh" or "max")");
  }
  return api_ok();
}

std::string effort_of_budget(std::int64_t tokens) {
  constexpr std::int64_t kLow = 4096;
  constexpr std::int64_t kMedium = 16384;
  return tokens < kLow ? "low" : tokens < kMedium ? "medium" : "high";
}

}  // namespace

ApiResult<ThinkingFields> read_thinking(const ApiFields& body) {
  ThinkingFields out;
  TRY(read_effort(body, out));
  // System messages may change the effort. The last change counts, because the template gets one effort for the whole
  // prompt.
  if (const Json* messages = TRY(body.array("messages")); messages != nullptr) {
    for (std::size_t i = 0; i < messages->as_array().size(); ++i) {
      const Json& message = messages->as_array()[i];
      if (is_of_role(message, "system")) TRY(read_effort(ApiFields(message, fmt::format("messages[{}].", i)), out));
    }
  }
  const Json* json = TRY(body.object("thinking"));
  if (json == nullptr) return out;
  const ApiFields fields(*json, "thinking.");
  const std::string type = TRY(fields.string("type")).value_or("");
  if (type == "disabled") return out;
  if (type != "enabled" && type != "adaptive" && type != "between_tools")
    return fields.wrong("type", R"("enabled", "adaptive", "between_tools" or "disabled")");
  out.on = true;
  out.budget = TRY(fields.integer("budget_tokens", 1, std::numeric_limits<std::int32_t>::max()));
  if (type == "enabled" && !out.budget)
    return fields.wrong("budget_tokens", "a number of tokens where \"type\" is \"enabled\"");
  out.omitted = TRY(fields.string("display")).value_or("") == "omitted";
  return out;
}

Json thinking_variables(const ThinkingFields& thinking, const ChatTemplate& chat) {
  Json variables = Json::object();
  for (const char* key : {"enable_thinking", "thinking"})
    if (chat.names(key)) variables.set(key, thinking.on);
  if (!chat.names("reasoning_effort")) return variables;
  if (thinking.effort) {
    variables.set("reasoning_effort", *thinking.effort);
  } else if (thinking.budget) {
    variables.set("reasoning_effort", effort_of_budget(*thinking.budget));
  } else if (!thinking.on) {
    variables.set("reasoning_effort", "low");
  }
  return variables;
}

}  // namespace tessera
