// Names the client that sent a request. Clients share the server's resources fairly by this name.
#pragma once

#include <span>
#include <string>

#include "tessera/server/http/http.h"

namespace tessera {

// Returns the request's API key if the server has several keys: each key is one client, from any address. Else returns
// the request's address (HttpRequest::peer), which all clients behind one proxy share. Precondition: the request holds
// one of `api_keys` if there are any.
std::string client_of(const HttpRequest& request, std::span<const std::string> api_keys);

// Returns the name of the client that owns what its requests store: the request's API key if the server has several
// keys, else "", because then all clients are one. The same precondition.
std::string owner_of(const HttpRequest& request, std::span<const std::string> api_keys);

}  // namespace tessera
