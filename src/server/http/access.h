// Who may use a route: anybody, holders of a key, or administrators.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/http/api_error.h"

namespace tessera {

enum class RouteAccess : std::uint8_t {
  kOpen,    // everybody
  kClient,  // whoever has a key, if the server has keys
  kAdmin,   // whoever has an administrator's key, if the server has such keys; else as kClient
};

class Access {
 public:
  // An empty list means that there are no such keys. No key may be empty.
  Access(std::vector<std::string> keys, std::vector<std::string> admin_keys)
      : keys_(std::move(keys)), admin_keys_(std::move(admin_keys)) {}

  // Returns the refusal of a request with this head; nothing if it may use the route. An administrator's
  // key opens all routes. Errors: 401 without a right key, 403 for a client's key at an administrator's route.
  std::optional<ApiError> check(const HttpRequest& head, RouteAccess access) const;

 private:
  std::vector<std::string> keys_;
  std::vector<std::string> admin_keys_;
};

}  // namespace tessera
