// Decides which engine of the process may run kernels whose blocks wait for one another. Two such launches on two
// streams could deadlock: each launch might have only a part of its blocks on the device, and these blocks would wait
// for the rest.
//
//   std::shared_ptr<const DeviceClaim> claim = DeviceClaims::of_process().take(ordinal, &call.context, "…");
//   if (claim == nullptr) return …;   // another engine has the claim: run other kernels
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string_view>

namespace tessera {

// A claim lets its holders run kernels whose blocks wait for one another. A claim ends when the last copy of the
// pointer that take() returned is gone. One owner launches all such kernels on one stream, so they run one after
// another.
struct DeviceClaim {
  const void* owner;
};

// The claims of a process. Thread-safe.
class DeviceClaims {
 public:
  // Returns the object that all engines of the process use, because they share the devices but do not know of one
  // another.
  static DeviceClaims& of_process();

  // Claims the device for `owner`. If another owner holds a claim on the device, returns null and logs a warning that
  // names the kernel. `device` is the device's number in the process. `owner` lives as long as the claim.
  std::shared_ptr<const DeviceClaim> take(int device, const void* owner, std::string_view kernel);

 private:
  std::mutex mutex_;
  std::map<int, std::weak_ptr<const DeviceClaim>> claims_;
};

}  // namespace tessera
