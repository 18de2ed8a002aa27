// The protocols whose clients read errors in a shape of their own, and the paths that belong to them. An error that is
// made before a route's reader runs (a wrong key, a large body, a full queue) has the shape of the request's path.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class ErrorShape : std::uint8_t {
  kOpenAi,     // {"error": {"message", "type", "param", "code"}}
  kAnthropic,  // {"type": "error", "error": {"type", "message"}, "request_id"}, and the id as the header request-id
  kOllama,     // {"error": "message"}
};

// Anthropic's header of every answer, with the id by which a client reports it.
inline constexpr const char* kRequestIdHeader = "request-id";

// Returns the shape of errors at a path, whether or not it has a route. `path` has no query.
ErrorShape error_shape_of(std::string_view path);

}  // namespace tessera
