// Whether a request's body is of a kind that the routes read, as its head says.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/server/http/http.h"

namespace tessera {

// "application/json" and "application/…+json", with or without parameters.
bool is_json_type(std::string_view content_type);

// The answer to a request whose body is not JSON by its Content-Type, or is compressed in a way that is not known: 415.
// A body without Content-Type is taken for JSON, as many clients send it; a web page's has an Origin, which is checked
// before (http_guard.h). None where there is no body.
std::optional<HttpResponse> check_body(const HttpRequest& request);

}  // namespace tessera
