// Whose request it is, where clients share what the server has.
#pragma once

#include <span>
#include <string>

#include "tessera/server/http/http.h"

namespace tessera {

// Where there are several API keys, the one that the request has: each is one client's, wherever that is. Else the
// address that it came from (HttpRequest::peer), which clients behind a proxy have in common.
// Precondition: the request holds one of `api_keys`, where there are any.
std::string client_of(const HttpRequest& request, std::span<const std::string> api_keys);

}  // namespace tessera
