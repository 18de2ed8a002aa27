// Checks who may use a route: anybody, holders of a key, or administrators.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/http/api_error.h"

namespace tessera {

enum class RouteAccess : std::uint8_t {
  kOpen,    // anybody
  kClient,  // holders of a key, if the server has keys
  kAdmin,   // holders of an administrator's key, if the server has such keys; else like kClient
};

class Access {
 public:
  // Takes the keys of clients and of administrators. An empty list means that the server has no such keys. No key may
  // be empty.
  Access(std::vector<std::string> keys, std::vector<std::string> admin_keys)
      : keys_(std::move(keys)), admin_keys_(std::move(admin_keys)) {}

  // Returns the refusal of a request with this head, or nothing if the request may use the route. An administrator's
  // key opens all routes. Errors: 401 without a valid key, 403 for a client's key at an administrator's route.
  std::optional<ApiError> check(const HttpRequest& head, RouteAccess access) const;

 private:
  std::vector<std::string> keys_;
  std::vector<std::string> admin_keys_;
};

}  // namespace tessera
