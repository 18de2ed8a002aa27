#include "tessera/piecewise/external_values.h"

#include <utility>

namespace tessera {

void ExternalValues::add(std::string name, DeviceAddress address) {
  add(std::move(name), [address](const ir::Bucket&) { return address; });
}

void ExternalValues::add(std::string name, AddressOfBucket address) {
  addresses_.insert_or_assign(std::move(name), std::move(address));
}

DeviceAddress ExternalValues::find(std::string_view name, const ir::Bucket& bucket) const {
  const auto it = addresses_.find(name);
  return it == addresses_.end() ? DeviceAddress{} : it->second(bucket);
}

}  // namespace tessera
