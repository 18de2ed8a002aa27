#include "tessera/server/http/client_of.h"

#include <algorithm>
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

// Returns the key that the request holds; null if it holds none of `keys`.
const std::string* key_of(const HttpRequest& request, std::span<const std::string> keys) {
  const auto key = std::ranges::find_if(keys, [&](const std::string& each) { return holds_key(request, {&each, 1}); });
  return key == keys.end() ? nullptr : &*key;
}

}  // namespace

std::string client_of(const HttpRequest& request, std::span<const std::string> api_keys) {
  const std::string* const key = api_keys.size() < 2 ? nullptr : key_of(request, api_keys);
  return key != nullptr ? *key : request.peer;
}

std::string owner_of(const HttpRequest& request, std::span<const std::string> keys) {
  const std::string* const key = key_of(request, keys);
  return key != nullptr ? name_of(*key) : "";
}

std::string owner_of_unnamed(std::span<const std::string> api_keys) {
  return api_keys.size() == 1 ? name_of(api_keys.front()) : "";
}

}  // namespace tessera
