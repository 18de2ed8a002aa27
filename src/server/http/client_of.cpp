#include "tessera/server/http/client_of.h"

#include <string_view>

namespace tessera {

std::string client_of(const HttpRequest& request, std::span<const std::string> api_keys) {
  if (api_keys.size() < 2) return request.peer;
  // Removes the scheme, in upper or lower case.
  const std::string_view header = request.header("Authorization");
  if (header.empty()) return std::string(request.header("x-api-key"));
  return std::string(header.substr(header.find(' ') + 1));
}

std::string owner_of(const HttpRequest& request, std::span<const std::string> api_keys) {
  return api_keys.size() < 2 ? "" : client_of(request, api_keys);
}

}  // namespace tessera
