// Addresses of values from outside of a forward: inputs, weights and states, by name.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tessera/device/device.h"
#include "tessera/ir/type.h"

namespace tessera {

class ExternalValues {
 public:
  using AddressOfBucket = std::function<DeviceAddress(const ir::Bucket& bucket)>;

  // Adds an address that is the same for every bucket. A name that was added before gets the new address.
  void add(std::string name, DeviceAddress address);
  // Adds an address that depends on the bucket, such as a field of inputs that are packed for one upload. `address` is
  // called while a bucket is bound or checked, never in a forward. It must return the same for the same bucket.
  void add(std::string name, AddressOfBucket address);

  bool contains(std::string_view name) const { return addresses_.contains(name); }
  // Returns null if the name is unknown.
  DeviceAddress find(std::string_view name, const ir::Bucket& bucket) const;

 private:
  std::map<std::string, AddressOfBucket, std::less<>> addresses_;
};

}  // namespace tessera
