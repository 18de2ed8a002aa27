// Refusals that several routes share: the server takes no requests, or there is nothing at a path.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/server/http/api_error.h"

namespace tessera {

// Returns whether the route answers until the server's end, because it reports how the server is doing.
bool answers_while_draining(std::string_view route);

// Returns a 503 with the header Retry-After.
ApiError unavailable(std::string message);
ApiError engine_failed(const Status& why);
// Returns the 404 for a path that a route matches ("/v1/files/*") and that names nothing it has.
ApiError nothing_at(const std::string& path);

}  // namespace tessera
