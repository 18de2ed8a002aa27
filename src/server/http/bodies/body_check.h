// Checks, before a request's body is read, whether the route can read a body of this type.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/server/http/http.h"

namespace tessera {

// Accepts "application/json" and "application/…+json", with or without parameters.
bool is_json_type(std::string_view content_type);

// The type of body that a route reads.
enum class BodyType : std::uint8_t {
  kJson,
  kForm,  // multipart/form-data, without a Content-Encoding
};

// Returns the 415 for a request whose Content-Type or Content-Encoding the route does not accept. Returns nothing if
// the body is accepted or there is none. A body without Content-Type counts as JSON, because many clients do not send
// this header. Web pages of other sites still cannot send JSON or forms: their requests have an Origin header, which
// was checked before (http_guard.h).
std::optional<HttpResponse> check_body(const HttpRequest& request, BodyType accepted);

}  // namespace tessera
