#include "tessera/server/http/http_guard.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "tessera/server/http/http_message.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr std::size_t kMostShown = 100;  // maximum number of bytes of a client's value in an error

// Returns a host such as "[::1]:80" or "name:80" without its port.
std::string_view without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || host.find(']', colon) != std::string_view::npos) return host;
  return host.substr(0, colon);
}

bool ends_with_ignoring_case(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && equals_ignoring_case(text.substr(text.size() - end.size()), end);
}

// Returns the host of an origin, for example "name:80" for "http://name:80". Returns "" for "null" and other texts
// without "://".
std::string_view host_of_origin(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return {};
  return origin.substr(scheme + 3);
}

std::string_view without_default_port(std::string_view host, std::string_view origin) {
  const std::string_view port = origin.starts_with("https:") ? ":443" : ":80";
  return host.ends_with(port) ? host.substr(0, host.size() - port.size()) : host;
}

bool is_same_origin(std::string_view origin, std::string_view host) {
  const std::string_view page = host_of_origin(origin);
  return !page.empty() && !host.empty() &&
         equals_ignoring_case(without_default_port(page, origin), without_default_port(host, origin));
}

std::string shown(std::string_view value) { return replace_invalid_utf8(value.substr(0, kMostShown)); }

}  // namespace

bool is_loopback_name(std::string_view host) {
  const std::string_view name = without_port(host);
  if (equals_ignoring_case(name, "localhost") || ends_with_ignoring_case(name, ".localhost") || name == "[::1]")
    return true;
  in_addr address{};
  return ::inet_pton(AF_INET, std::string(name).c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

bool is_allowed_host(std::string_view host, const std::vector<std::string>& allowed) {
  const std::string_view name = without_port(host);
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& entry) {
    if (entry == "*" || equals_ignoring_case(entry, host) || equals_ignoring_case(entry, name)) return true;
    return entry.starts_with("*.") && ends_with_ignoring_case(name, std::string_view(entry).substr(1));
  });
}

bool is_named_origin(std::string_view origin, const std::vector<std::string>& origins) {
  return std::any_of(origins.begin(), origins.end(), [&](const std::string& entry) {
    return entry == "*" || (!origin.empty() && equals_ignoring_case(entry, origin));
  });
}

Status check_allowed_host(std::string_view entry) {
  const bool below = entry.starts_with("*.");
  const std::string_view name = entry.substr(below ? 2 : 0);
  if (entry == "*" || (!name.empty() && name.find_first_of("*/@ \t?#") == std::string_view::npos)) return ok_status();
  return invalid_argument(fmt::format(
      "\"{}\" is no host name; accepted are \"*\", \"llm.example\", \"llm.example:8443\" and \"*.llm.example\"",
      entry));
}

Status check_origin(std::string_view entry) {
  const std::string_view host = host_of_origin(entry);
  const bool whole =
      !entry.starts_with("://") && !host.empty() && host.find_first_of("*/@ \t?#,") == std::string_view::npos;
  if (entry == "*" || entry == "null" || whole) return ok_status();
  return invalid_argument(
      fmt::format("\"{}\" is no origin; accepted are \"*\", \"null\" and a scheme and a host without a path, like "
                  "\"https://app.example\" or \"http://localhost:5173\"",
                  entry));
}

std::optional<ApiError> check_sender(const HttpRequest& request, std::string_view host, const HttpOptions& options,
                                     bool loopback) {
  const bool host_matters = loopback || !options.allowed_hosts.empty();
  if (host_matters && !host.empty() && !is_loopback_name(host) && !is_allowed_host(host, options.allowed_hosts)) {
    return ApiError{
        .http_status = 403,
        .message = fmt::format("this server does not answer to the host name \"{0}\"; accepted: localhost, "
                               "127.0.0.1, [::1] and the names of --allowed-hosts (--allowed-hosts \"{0}\")",
                               shown(host)),
        .param = {},
        .code = "host_not_allowed"};
  }
  const std::string_view origin = request.header("Origin");
  if (!origin.empty() && !is_named_origin(origin, options.cors_origins) && !is_same_origin(origin, host)) {
    return ApiError{
        .http_status = 403,
        .message = fmt::format("web pages of \"{0}\" may not use this server; accepted: its own page and the "
                               "origins of --cors-allow-origins (--cors-allow-origins \"{0}\")",
                               shown(origin)),
        .param = {},
        .code = "origin_not_allowed"};
  }
  return std::nullopt;
}

}  // namespace tessera
