// Which engine of the process may run kernels whose blocks wait for one another. Two such launches of two streams might
// each have a part of their blocks on the device, and wait for ever for the others.
//
//   std::shared_ptr<const DeviceClaim> claim = DeviceClaims::of_process().take(ordinal, &call.context, "…");
//   if (claim == nullptr) return …;   // another engine has it, as the log says: the operators' own kernels run
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string_view>

namespace tessera {

// Whoever holds one may run such kernels; it ends with the last copy of the pointer. Launches of one owner follow each
// other on one stream.
struct DeviceClaim {
  const void* owner;
};

// Thread-safe.
class DeviceClaims {
 public:
  // Engines do not know of one another, but share the process's devices.
  static DeviceClaims& of_process();

  // Null, with a warning in the log that names the kernel, as long as somebody else has a claim on the device.
  // `device`: its number in the process. `owner` lives as long as the claim.
  std::shared_ptr<const DeviceClaim> take(int device, const void* owner, std::string_view kernel);

 private:
  std::mutex mutex_;
  std::map<int, std::weak_ptr<const DeviceClaim>> claims_;
};

}  // namespace tessera
