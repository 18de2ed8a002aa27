// Names the client that sent a request. The server's resources are shared fairly among these names.
#pragma once

#include <span>
#include <string>

#include "tessera/server/http/http.h"

namespace tessera {

// If the server has several keys for clients and the request holds one of them, returns this key. Each key then stands
// for one client, whatever address the request comes from. Otherwise returns the request's address (HttpRequest::peer),
// which all clients behind one proxy share. No other text of the request counts, so that a client cannot choose a name.
std::string client_of(const HttpRequest& request, std::span<const std::string> api_keys);

// Returns the name of the owner of everything that this client's requests store: the SHA-256 of the request's key, so
// that no key is stored. `keys` are all keys of the server, of clients and of administrators. If the request holds none
// of them, the name is "", because all clients without a key count as one.
std::string owner_of(const HttpRequest& request, std::span<const std::string> keys);

// Returns the owner of files and batches whose record names no owner. Earlier versions wrote no names on a server with
// one key. If there is exactly one key for clients, returns that key's owner_of() name. Otherwise returns "".
std::string owner_of_unnamed(std::span<const std::string> api_keys);

}  // namespace tessera
