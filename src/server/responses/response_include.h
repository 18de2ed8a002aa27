// Checks "include", the list of what a response has besides its items, in a request's body and in a query.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/server/api_result.h"

namespace tessera {

// Accepts every name of OpenAI's protocol. Most of them belong to tools that this server does not run, and have no
// effect. `place` begins the error's message: "request: field" or "query:".
ApiStatus check_included(std::span<const std::string> names, std::string_view place);

}  // namespace tessera
