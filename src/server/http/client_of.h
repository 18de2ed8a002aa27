// Names the client that sent a request. The server's resources are shared fairly among these names.
#pragma once

#include <span>
#include <string>

#include "tessera/server/http/http.h"

namespace tessera {

// Returns the request's API key if the server has several keys: each key is one client, from any address. Otherwise
// returns the request's address (HttpRequest::peer), which all clients behind one proxy share. Precondition: if there
// are `api_keys`, the request holds one of them.
std::string client_of(const HttpRequest& request, std::span<const std::string> api_keys);

// Returns the name under which a client owns what its requests store: the SHA-256 of the request's API key if the
// server has several keys, so that no key is kept, else "", because then all clients are one. Precondition: as for
// client_of().
std::string owner_of(const HttpRequest& request, std::span<const std::string> api_keys);

}  // namespace tessera
