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

// Reads all of these fields. The session still has the name that the client gave it, so the caller must call
// own_sessions() afterwards.
ApiResult<RetentionHint> read_retention(const ApiFields& fields);
// Reads the name of a session. Returns "" if the key is absent.
ApiResult<std::string> read_session_name(const ApiFields& fields, std::string_view key);
// Reads "session_id", which must be there.
ApiResult<std::string> read_session(const ApiFields& fields);

// Returns the name by which the engine knows a client's session. The name contains `owner` (owner_of()), so clients
// with different API keys never share a session.
std::string session_of(std::string_view owner, std::string_view session);
// Sets the owner in each request's retention hint, and renames the hint's session with session_of(). Skips requests
// without a hint. `owner` returns the owner's name. It is called at most once, and only if a request has a hint,
// because it computes a digest.
void own_sessions(const std::function<std::string()>& owner, std::vector<Request>& requests);

}  // namespace tessera
