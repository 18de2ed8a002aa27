// Who may send a request: keeps web pages of other sites from using a server that their reader's browser can reach.
//
// A browser sends a page's requests to any address. It names the page's site in Origin, and the name that the page used
// for the server in Host: a site can let its own name point to 127.0.0.1 (DNS rebinding), but cannot call it localhost.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/http/api_error.h"
#include "tessera/server/http/http.h"

namespace tessera {

// "localhost", "a.localhost", "127.0.0.1" to "127.255.255.255" or "[::1]", with or without a port.
bool is_loopback_name(std::string_view host);

// Whether `host`, a Host header's value, is one of `allowed`: "*"; "name", which stands for any port, or "name:port";
// "*.name", which stands for every name below it.
bool is_allowed_host(std::string_view host, const std::vector<std::string>& allowed);

// Whether `origin`, an Origin header's value, is one of `origins`: "*", or the same whatever the case.
bool is_named_origin(std::string_view origin, const std::vector<std::string>& origins);

// Whether an entry of HttpOptions::allowed_hosts, or of its cors_origins, can ever be what a request says. Errors name
// the entry and what is accepted.
Status check_allowed_host(std::string_view entry);
Status check_origin(std::string_view entry);

// The error for a request that the server must not take, 403. `host` is the request's, "" where it has none, which no
// browser sends; `loopback` is whether the server listens on a loopback address alone.
std::optional<ApiError> check_sender(const HttpRequest& request, std::string_view host, const HttpOptions& options,
                                     bool loopback);

}  // namespace tessera
