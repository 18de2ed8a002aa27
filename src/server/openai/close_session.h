// Reads the body of POST /close_session, a route of SGLang, by which a client says that a session is over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct CloseSession {
  std::string session{};
};

ApiResult<CloseSession> read_close_session(const ServedModel& model, std::string_view body);

// Returns the number of bytes of memory that the request holds (work/request_memory.h).
inline std::int64_t held_bytes(const CloseSession& request, std::int64_t, std::int64_t) {
  return static_cast<std::int64_t>(request.session.capacity());
}

}  // namespace tessera
