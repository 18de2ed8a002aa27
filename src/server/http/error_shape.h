// Says which shape the errors at a path have. Each protocol's clients expect a shape of their own, also for errors that
// arise before a route reads the request (a wrong key, a large body, a full queue).
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class ErrorShape : std::uint8_t {
  kOpenAi,     // {"error": {"message", "type", "param", "code"}}
  kAnthropic,  // {"type": "error", "error": {"type", "message"}, "request_id"}, and the id as the header request-id
  kOllama,     // {"error": "message"}
};

// The header with the id of an answer. In Anthropic's protocol every answer has this header, and clients report
// problems by the id.
inline constexpr const char* kRequestIdHeader = "request-id";

// Returns the shape of errors at a path, even if no route has that path. `path` has no query.
ErrorShape error_shape_of(std::string_view path);

}  // namespace tessera
