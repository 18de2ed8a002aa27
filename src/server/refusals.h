// The reasons for which a server takes no requests.
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

}  // namespace tessera
