#include "tessera/server/http/router.h"

#include <fmt/format.h>

#include "tessera/base/json_fields.h"
#include "tessera/server/http/http_message.h"

namespace tessera {
namespace {

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

bool is_key(std::string_view given, std::span<const std::string> keys) {
  bool held = false;
  for (const std::string& key : keys) {
    unsigned difference = given.size() == key.size() ? 0 : 1;
    for (std::size_t i = 0; i < given.size(); ++i) {
      difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i % key.size()]);
    }
    held |= difference == 0;
  }
  return held;
}

}  // namespace

std::string Router::methods(std::string_view path) const {
  std::string methods;
  for (const Route& route : routes_) {
    if (!matches(route.path, path)) continue;
    if (!methods.empty()) methods += ", ";
    methods += route.method;
  }
  return methods;
}

std::string Router::nearest(std::string_view path) const {
  constexpr std::string_view kBase = "/v1";
  std::string longer = std::string(kBase) + std::string(path);
  if (!methods(longer).empty()) return longer;
  if (!path.starts_with(kBase)) return "";
  path.remove_prefix(kBase.size());
  return path.size() <= 1 || methods(path).empty() ? "" : std::string(path);
}

ApiResult<const Route*> Router::find(std::string_view method, std::string_view path) const {
  for (const Route& route : routes_) {
    if (route.method == method && matches(route.path, path)) return &route;
  }
  const std::string shown = clip_text(std::string(path));
  const std::string allowed = methods(path);
  if (allowed.empty()) {
    const std::string near = nearest(path);
    return ApiError{.http_status = 404,
                    .message = fmt::format("there is nothing at {}{}", shown,
                                           near.empty() ? "" : fmt::format("; did you mean {}?", clip_text(near))),
                    .param = {},
                    .code = "unknown_url"};
  }
  return ApiError{
      .http_status = 405,
      .message = fmt::format("{} is not for {}; accepted: {}", clip_text(std::string(method)), shown, allowed),
      .param = {},
      .code = "method_not_allowed"};
}

bool holds_key(const HttpRequest& head, std::span<const std::string> keys) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view authorization = head.header("Authorization");
  const bool bearer = equals_ignoring_case(authorization.substr(0, kScheme.size()), kScheme);
  return (bearer && is_key(authorization.substr(kScheme.size()), keys)) || is_key(head.header("x-api-key"), keys);
}

}  // namespace tessera
