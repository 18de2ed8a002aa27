#include "tessera/server/http/client_of.h"

#include <string_view>
#include <utility>

#include "tessera/model/hub/hub_digest.h"

namespace tessera {

std::string client_of(const HttpRequest& request, std::span<const std::string> api_keys) {
  if (api_keys.size() < 2) return request.peer;
  const std::string_view header = request.header("Authorization");
  if (header.empty()) return std::string(request.header("x-api-key"));
  // Removes the scheme, for example "Bearer ". The scheme ends at the first space.
  return std::string(header.substr(header.find(' ') + 1));
}

std::string owner_of(const HttpRequest& request, std::span<const std::string> api_keys) {
  if (api_keys.size() < 2) return "";
  const std::string key = client_of(request, api_keys);
  const auto digest = [&key]() -> Result<std::string> {
    Digest sha256 = TRY(Digest::sha256());
    sha256.add(key);
    return sha256.finish();
  };
  Result<std::string> name = digest();
  return name.ok() ? *std::move(name) : key;  // the digest fails only if memory runs out
}

}  // namespace tessera
