// Reads the fields by which a client says how long the prefix cache should keep a request's text: "session_id",
// "retention_seconds" and "cache_priority", or "nvext" (nvext_fields.h).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/cache/retention_hint.h"
#include "tessera/engine/request.h"
#include "tessera/server/api_result.h"
#include "tessera/server/fields/api_fields.h"

namespace tessera {

inline constexpr std::size_t kLongestSession = 256;  // bytes of a session's name

// The session has the name that the client gives it; own_sessions() makes it the client's.
ApiResult<RetentionHint> read_retention(const ApiFields& fields);
// Reads the name of a session; returns "" if the key is absent.
ApiResult<std::string> read_session_name(const ApiFields& fields, std::string_view key);
// Reads "session_id", which must be there.
ApiResult<std::string> read_session(const ApiFields& fields);

// Returns the engine's name for a session of `owner` (owner_of()). Clients with different keys have different sessions.
std::string session_of(std::string_view owner, std::string_view session);
// Gives the retentions of the requests to the owner that `owner` returns, and renames their sessions to those of that
// owner. Calls `owner` only if a request has a retention, because an owner's name costs a digest.
void own_sessions(const std::function<std::string()>& owner, std::vector<Request>& requests);

}  // namespace tessera
