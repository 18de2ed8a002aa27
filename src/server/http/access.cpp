#include "tessera/server/http/access.h"

#include "tessera/server/http/router.h"

namespace tessera {

std::optional<ApiError> Access::check(const HttpRequest& head, RouteAccess access) const {
  const std::span<const std::string> client_keys = keys().first(num_client_keys_);
  const std::span<const std::string> admin_keys = keys().subspan(num_client_keys_);
  const bool needs_admin = access == RouteAccess::kAdmin && !admin_keys.empty();
  const bool needs_key = access != RouteAccess::kOpen && (needs_admin || !client_keys.empty());
  if (!needs_key || holds_key(head, admin_keys)) return std::nullopt;
  const bool holds_any = holds_key(head, client_keys);
  if (holds_any && !needs_admin) return std::nullopt;
  if (holds_any) {
    return ApiError{.http_status = 403,
                    .message = "this route needs an administrator's key; accepted: one of --admin-api-key",
                    .type = "permission_error",
                    .param = {},
                    .code = "admin_key_required"};
  }
  return ApiError{
      .http_status = 401,
      .message = needs_admin ? "an administrator's key is missing or wrong; accepted: the header \"Authorization: "
                               "Bearer <key>\" or \"x-api-key: <key>\""
                             : "the API key is missing or wrong; accepted: the header \"Authorization: Bearer <key>\" "
                               "or \"x-api-key: <key>\"",
      .param = {},
      .code = "invalid_api_key"};
}

}  // namespace tessera
