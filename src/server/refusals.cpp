#include "tessera/server/refusals.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/json_fields.h"

namespace tessera {

bool answers_while_draining(std::string_view route) {
  return route == "/health" || route == "/metrics" || route == "/live" || route == "/v1/loads";
}

ApiError unavailable(std::string message) {
  return {.http_status = 503,
          .message = std::move(message),
          .type = "server_error",
          .param = {},
          .code = "service_unavailable",
          .retry_after_s = 1};
}

ApiError engine_failed(const Status& why) {
  return unavailable(fmt::format("the engine has failed: {}", why.message()));
}

ApiError nothing_at(const std::string& path) {
  return {.http_status = 404,
          .message = fmt::format("there is nothing at {}", clip_text(path)),
          .param = {},
          .code = "unknown_url"};
}

}  // namespace tessera
