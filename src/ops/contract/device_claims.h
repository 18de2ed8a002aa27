// Decides which engine of the process may run kernels with blocks that wait for one another. Two such launches on two
// streams could deadlock: each might have part of its blocks on the device and wait for the rest.
//
//   std::shared_ptr<const DeviceClaim> claim = DeviceClaims::of_process().take(ordinal, &call.context, "…");
//   if (claim == nullptr) return …;   // another engine has it, as the log says: the operators' own kernels run
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string_view>

namespace tessera {

// A claim lets its holders run kernels with blocks that wait for one another. It ends with the last copy of the
// pointer. Launches of one owner follow each other on one stream.
struct DeviceClaim {
  const void* owner;
};

// The claims of a process. Thread-safe.
class DeviceClaims {
 public:
  // Returns the object that all engines of the process use: they share its devices, but do not know of one another.
  static DeviceClaims& of_process();

  // Claims the device for `owner`. While another owner holds a claim on it, returns null instead, and logs a warning
  // that names the kernel. `device` is the device's number in the process. `owner` lives as long as the claim.
  std::shared_ptr<const DeviceClaim> take(int device, const void* owner, std::string_view kernel);

 private:
  std::mutex mutex_;
  std::map<int, std::weak_ptr<const DeviceClaim>> claims_;
};

}  // namespace tessera
