// Reads the body of POST /abort_request, a route of SGLang, by which a client ends running requests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct AbortRequest {
  std::string id{};  // id of an answer, or of one of its requests; "": all requests
};

// Reads "rid" and "abort_all". Returns an error unless "abort_all" is true or "rid" is given.
ApiResult<AbortRequest> read_abort(const ServedModel& model, std::string_view body);

// Returns the bytes that the request holds (work/request_memory.h).
inline std::int64_t held_bytes(const AbortRequest& request, std::int64_t, std::int64_t) {
  return static_cast<std::int64_t>(request.id.capacity());
}

}  // namespace tessera
