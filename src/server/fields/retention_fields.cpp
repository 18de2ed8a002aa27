#include "tessera/server/fields/retention_fields.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tessera/server/fields/nvext_fields.h"

namespace tessera {

namespace {

ApiStatus check_session(const ApiFields& fields, std::string_view key, const std::string& session) {
  if (session.size() <= kLongestSession) return api_ok();
  return fields.wrong(key, fmt::format("a string of at most {} bytes", kLongestSession));
}

}  // namespace

ApiResult<RetentionHint> read_retention(const ApiFields& fields) {
  RetentionHint hint = TRY(read_nvext(fields));
  TRY(check_session(fields, "nvext", hint.session));
  if (const std::optional<std::string> session = TRY(fields.string("session_id")); session && !session->empty()) {
    TRY(check_session(fields, "session_id", *session));
    if (!hint.session.empty() && hint.session != *session) return fields.contradiction("session_id", "nvext");
    hint.session = *session;
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
  std::optional<std::string> session = TRY(fields.string("session_id"));
  if (!session || session->empty())
    return fields.wrong("session_id", fmt::format("a string of 1 to {} bytes, which is required", kLongestSession));
  TRY(check_session(fields, "session_id", *session));
  return *std::move(session);
}

std::string session_of(std::string_view owner, std::string_view session) {
  return fmt::format("{}:{}", owner, session);
}

void own_sessions(std::string_view owner, std::vector<Request>& requests) {
  for (Request& request : requests)
    if (std::string& session = request.retention.session; !session.empty()) session = session_of(owner, session);
}

}  // namespace tessera
