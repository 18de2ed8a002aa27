#include "tessera/ops/contract/device_claims.h"

#include "tessera/base/log.h"

namespace tessera {

DeviceClaims& DeviceClaims::of_process() {
  static DeviceClaims claims;
  return claims;
}

std::shared_ptr<const DeviceClaim> DeviceClaims::take(int device, const void* owner, std::string_view kernel) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const DeviceClaim>& known = claims_[device];
  if (std::shared_ptr<const DeviceClaim> held = known.lock()) {
    if (held->owner == owner) return held;
    log_warn(
        "compile",
        "another engine of this process runs the kernel '{}' on device {}, and two such launches could wait for each "
        "other for ever; here the operators run one by one",
        kernel, device);
    return nullptr;
  }
  auto made = std::make_shared<const DeviceClaim>(owner);
  known = made;
  return made;
}

}  // namespace tessera
