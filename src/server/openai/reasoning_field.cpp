#include "tessera/server/openai/reasoning_field.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

ApiResult<Json> reasoning_variables(const ApiFields& fields, const ChatTemplate& chat) {
  Json variables = Json::object();
  const Json* given = TRY(fields.object("reasoning"));
  if (given == nullptr) return variables;
  const ApiFields reasoning(*given, "reasoning.");
  const std::optional<std::string> effort = TRY(reasoning.string("effort"));
  if (!effort) return variables;
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts))
    return reasoning.wrong("effort", R"("none", "minimal", "low", "medium", "high", "xhigh" or "max")");
  if (chat.names("enable_thinking")) variables.set("enable_thinking", *effort != "none");
  if (*effort != "none" && chat.names("reasoning_effort")) variables.set("reasoning_effort", *effort);
  return variables;
}

ApiResult<bool> wants_reasoning_summary(const ApiFields& fields) {
  const Json* given = TRY(fields.object("reasoning"));
  if (given == nullptr) return false;
  const ApiFields reasoning(*given, "reasoning.");
  bool wants = false;
  for (const std::string_view key : {"summary", "generate_summary"}) {
    const std::string asked = TRY(reasoning.string(key)).value_or("none");
    if (asked != "none" && asked != "auto" && asked != "concise" && asked != "detailed")
      return reasoning.wrong(key, R"("auto", "concise", "detailed" or "none")");
    wants = wants || asked != "none";
  }
  return wants;
}

}  // namespace tessera
