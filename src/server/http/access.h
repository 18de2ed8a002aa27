// Checks who may use a route: anybody, holders of a key, or administrators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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
  Access(std::vector<std::string> keys, const std::vector<std::string>& admin_keys)
      : num_client_keys_(keys.size()), keys_(std::move(keys)) {
    keys_.insert(keys_.end(), admin_keys.begin(), admin_keys.end());
  }

  // Returns the refusal of a request with this head, or nothing if the request may use the route. An administrator's
  // key opens all routes. Errors: 401 without a valid key, 403 for a client's key at an administrator's route.
  std::optional<ApiError> check(const HttpRequest& head, RouteAccess access) const;
  // Returns all keys, of clients and of administrators. They live as long as this object.
  std::span<const std::string> keys() const { return keys_; }

 private:
  std::size_t num_client_keys_;
  std::vector<std::string> keys_;  // the keys of clients, then those of administrators
};

}  // namespace tessera
