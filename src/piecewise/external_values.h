// Holds the addresses of the values that a forward does not make (inputs, weights and states), by name.
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

  // Adds an address that is the same for every bucket. If the name was added before, the new address replaces the old
  // one.
  void add(std::string name, DeviceAddress address);
  // Adds an address that depends on the bucket. One example is the address of an input that is packed with other inputs
  // for one upload. `address` is called only while a bucket is bound or checked, and not during a forward. It must
  // always return the same address for the same bucket.
  void add(std::string name, AddressOfBucket address);

  bool contains(std::string_view name) const { return addresses_.contains(name); }
  // Returns null if the name is unknown.
  DeviceAddress find(std::string_view name, const ir::Bucket& bucket) const;

 private:
  std::map<std::string, AddressOfBucket, std::less<>> addresses_;
};

}  // namespace tessera
