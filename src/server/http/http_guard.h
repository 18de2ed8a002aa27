// Checks who may send a request. A web page of another site must not use the server, even if the browser that shows the
// page can reach it.
//
// A browser sends a page's requests to any address. The header Origin names the page's site. The header Host has the
// name that the page used for the server. A site can let its own name resolve to 127.0.0.1 (DNS rebinding), but the
// check of Host notices this, because Host then has that name and not localhost.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/http/api_error.h"
#include "tessera/server/http/http.h"

namespace tessera {

// Returns whether `host` is "localhost", "a.localhost", "127.0.0.1" to "127.255.255.255" or "[::1]", with or without a
// port.
bool is_loopback_name(std::string_view host);

// Returns whether `host`, the value of a Host header, matches an entry of `allowed`. The entry "*" matches all hosts,
// "name" matches this name with any port, "name:port" matches only this port, and "*.name" matches every name below it.
bool is_allowed_host(std::string_view host, const std::vector<std::string>& allowed);

// Returns whether an entry of `origins` is "*" or equals `origin`, the value of an Origin header, ignoring case.
bool is_named_origin(std::string_view origin, const std::vector<std::string>& origins);

// Checks that an entry of HttpOptions::allowed_hosts or cors_origins can match some request. Errors name the entry and
// what is accepted.
Status check_allowed_host(std::string_view entry);
Status check_origin(std::string_view entry);

// Returns the 403 for a request that the server must not serve, or nothing if the server may serve it. `host` is the
// request's host, or "" if the request names none. No browser sends such a request. `loopback` says whether the server
// listens on a loopback address only.
std::optional<ApiError> check_sender(const HttpRequest& request, std::string_view host, const HttpOptions& options,
                                     bool loopback);

}  // namespace tessera
