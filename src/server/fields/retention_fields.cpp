#include "tessera/server/fields/retention_fields.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tessera/server/fields/nvext_fields.h"

namespace tessera {

ApiResult<std::string> read_session_name(const ApiFields& fields, std::string_view key) {
  std::string session = TRY(fields.string(key)).value_or("");
  if (session.size() > kLongestSession)
    return fields.wrong(key, fmt::format("a string of at most {} bytes", kLongestSession));
  return session;
}

ApiResult<RetentionHint> read_retention(const ApiFields& fields) {
  RetentionHint hint = TRY(read_nvext(fields));
  if (std::string session = TRY(read_session_name(fields, "session_id")); !session.empty()) {
    if (!hint.session.empty() && hint.session != session) return fields.contradiction("session_id", "nvext");
    hint.session = std::move(session);
  }
  if (const auto seconds = TRY(fields.number("retention_seconds", 0, RetentionHint::kMostSeconds))) {
    if (hint.seconds && *hint.seconds != *seconds) return fields.contradiction("retention_seconds", "nvext");
    hint.seconds = seconds;
  }
  hint.priority = TRY(fields.integer("cache_priority", 1, RetentionHint::kMostPriority));
  if (hint.priority && !hint.any()) return fields.unsupported("cache_priority", "with \"retention_seconds\"");
  return hint;
}

ApiResult<std::string> read_session(const ApiFields& fields) {
  std::string session = TRY(read_session_name(fields, "session_id"));
  if (session.empty())
    return fields.wrong("session_id", fmt::format("a string of 1 to {} bytes, which is required", kLongestSession));
  return session;
}

std::string session_of(std::string_view owner, std::string_view session) {
  return fmt::format("{}:{}", owner, session);
}

void own_sessions(const std::function<std::string()>& owner, std::vector<Request>& requests) {
  std::optional<std::string> name;
  for (Request& request : requests) {
    RetentionHint& hint = request.retention;
    if (!hint.any()) continue;
    if (!name) name = owner();
    hint.owner = *name;
    if (!hint.session.empty()) hint.session = session_of(*name, hint.session);
  }
}

}  // namespace tessera
