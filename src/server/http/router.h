// Which handler serves a request: by method and path.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/server/api_result.h"
#include "tessera/server/http/call.h"

namespace tessera {

struct Route {
  std::string method;
  std::string path;  // "/v1/models"; "/v1/models/*" stands for everything below
  std::function<void(Call call)> handler;
  bool open = false;  // needs no key
};

class Router {
 public:
  void add(Route route) { routes_.push_back(std::move(route)); }
  // The route; 404 where no route has the path, with the one that has it behind or without "/v1"; 405 with the methods
  // that it has.
  ApiResult<const Route*> find(std::string_view method, std::string_view path) const;
  // The value of the Allow header: "GET, POST".
  std::string methods(std::string_view path) const;

 private:
  // The nearest path with a route: a base URL may lack "/v1", or have it twice. "": there is none.
  std::string nearest(std::string_view path) const;

  std::vector<Route> routes_;
};

// Whether an Authorization header holds one of `keys`, none of which is empty: "Bearer KEY", where the scheme may be in
// any case (RFC 9110, 11.1). Takes as long for any header of one length, so that the time tells nothing of the keys.
bool holds_key(std::string_view authorization, std::span<const std::string> keys);

}  // namespace tessera
