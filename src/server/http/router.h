// Chooses the handler that serves a request by method and path.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/server/api_result.h"
#include "tessera/server/http/access.h"
#include "tessera/server/http/bodies/body_check.h"
#include "tessera/server/http/call.h"

namespace tessera {

struct Route {
  std::string method;
  std::string path;  // "/v1/models"; "/v1/models/*" matches everything below
  std::function<void(Call call)> handler;
  RouteAccess access = RouteAccess::kClient;
  BodyType body = BodyType::kJson;
};

class Router {
 public:
  void add(Route route) { routes_.push_back(std::move(route)); }
  // Returns the route. Errors: 404 if no route has the path (the message names the nearest path, with or without
  // "/v1"), and 405 with the allowed methods if the path has only routes of other methods.
  ApiResult<const Route*> find(std::string_view method, std::string_view path) const;
  std::span<const Route> routes() const { return routes_; }
  // Returns the value of the Allow header: "GET, POST".
  std::string methods(std::string_view path) const;

 private:
  // Returns `path` with "/v1" added to or removed from its front, if a route has that path. Otherwise returns "". A
  // client's base URL may lack "/v1" or have it twice.
  std::string nearest(std::string_view path) const;

  std::vector<Route> routes_;
};

// Returns whether a request's head holds one of `keys`, either in the header Authorization ("Bearer KEY") or in
// Anthropic's header x-api-key. "Bearer" may be in any case (RFC 9110, 11.1). No key may be empty. The time that a call
// takes depends only on the length of the sent text, so it reveals nothing about the keys.
bool holds_key(const HttpRequest& head, std::span<const std::string> keys);

}  // namespace tessera
