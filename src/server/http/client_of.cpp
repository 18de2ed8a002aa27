#include "tessera/server/http/client_of.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tessera/model/hub/hub_digest.h"
#include "tessera/server/http/router.h"

namespace tessera {
namespace {

// Returns the SHA-256 of a key.
std::string name_of(const std::string& key) {
  const auto digest = [&key]() -> Result<std::string> {
    Digest sha256 = TRY(Digest::sha256());
    sha256.add(key);
    return sha256.finish();
  };
  Result<std::string> name = digest();
  return name.ok() ? *std::move(name) : key;  // the digest fails only if memory runs out
}

}  // namespace

std::string client_of(const HttpRequest& request, std::span<const std::string> api_keys) {
  if (api_keys.size() < 2) return request.peer;
  const std::string_view header = request.header("Authorization");
  if (header.empty()) return std::string(request.header("x-api-key"));
  // Removes the scheme, for example "Bearer ". The scheme ends at the first space.
  return std::string(header.substr(header.find(' ') + 1));
}

std::string owner_of(const HttpRequest& request, std::span<const std::string> keys) {
  const auto key = std::ranges::find_if(keys, [&](const std::string& each) { return holds_key(request, {&each, 1}); });
  return key == keys.end() ? "" : name_of(*key);
}

std::string owner_of_unnamed(std::span<const std::string> api_keys) {
  return api_keys.size() == 1 ? name_of(api_keys.front()) : "";
}

}  // namespace tessera
