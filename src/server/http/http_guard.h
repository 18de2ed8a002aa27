// Checks who may send a request. It keeps web pages of other sites from using a server that the reader's browser can
// reach.
//
// A browser sends a page's requests to any address. Origin names the page's site, and Host is the name that the page
// used for the server. A site can let its own name point to 127.0.0.1 (DNS rebinding), but it cannot call it localhost.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/http/api_error.h"
#include "tessera/server/http/http.h"

namespace tessera {

// Accepts "localhost", "a.localhost", "127.0.0.1" to "127.255.255.255" and "[::1]", with or without a port.
bool is_loopback_name(std::string_view host);

// Whether `host`, the value of a Host header, matches an entry of `allowed`: "*"; "name", for any port, or "name:port";
// "*.name", for every name below it.
bool is_allowed_host(std::string_view host, const std::vector<std::string>& allowed);

// Whether `origin`, the value of an Origin header, matches an entry of `origins`: "*", or the same text in any case.
bool is_named_origin(std::string_view origin, const std::vector<std::string>& origins);

// Checks that an entry of HttpOptions::allowed_hosts or cors_origins can match any request. Errors name the entry and
// what is accepted.
Status check_allowed_host(std::string_view entry);
Status check_origin(std::string_view entry);

// Returns the 403 for a request that the server must not serve; nothing if it may. `host` is the request's host; "" if
// it has none, which no browser sends. `loopback`: the server listens on a loopback address only.
std::optional<ApiError> check_sender(const HttpRequest& request, std::string_view host, const HttpOptions& options,
                                     bool loopback);

}  // namespace tessera
