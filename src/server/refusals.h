// Errors that several routes share: the server takes no requests at present, or a path names nothing that exists.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/server/http/api_error.h"

namespace tessera {

// Returns whether the route still answers while the server drains. This is true for the routes that report the server's
// state.
bool answers_while_draining(std::string_view route);

// Returns a 503 with the header Retry-After.
ApiError unavailable(std::string message);
ApiError engine_failed(const Status& why);
// Returns the 404 for a path that matches a route such as "/v1/files/*" but names nothing that exists.
ApiError nothing_at(const std::string& path);

}  // namespace tessera
