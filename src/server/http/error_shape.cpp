#include "tessera/server/http/error_shape.h"

namespace tessera {

ErrorShape error_shape_of(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool messages =
      path.starts_with(kMessages) && (path.size() == kMessages.size() || path[kMessages.size()] == '/');
  if (messages) return ErrorShape::kAnthropic;
  return path.starts_with("/api/") ? ErrorShape::kOllama : ErrorShape::kOpenAi;
}

}  // namespace tessera
