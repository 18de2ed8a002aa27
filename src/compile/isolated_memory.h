// The memory plan's isolated twin (MemoryPlanKind::kIsolated): every value in an allocation of its
// own, poisoned with NaN and fenced by guard zones. The same kernels run on it with nothing shared,
// so that a fault of the plan, or a kernel that writes past its result, shows as a difference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera {

class IsolatedMemory {
 public:
  static constexpr std::size_t kGuardBytes = 1024;  // before and after each value
  // Bytes of a NaN in every floating-point type, and a large negative number in the integer types.
  static constexpr std::uint8_t kPoison = 0xff;

  // The device outlives this.
  explicit IsolatedMemory(Device& device) : device_(device) {}

  // An address for `bytes` bytes; `name` is what check_guards() reports.
  Result<DeviceAddress> allocate(std::string name, std::size_t bytes, Stream& stream);
  // Fills all values and guards with poison again.
  Status poison(Stream& stream);
  // Names the first value whose surroundings were written. Synchronises.
  Status check_guards(Stream& stream) const;
  std::int64_t total_bytes() const { return total_bytes_; }

 private:
  struct Value {
    std::string name;
    std::unique_ptr<Allocation> memory;
    std::size_t bytes;
  };
  Device& device_;
  std::vector<Value> values_;
  std::int64_t total_bytes_ = 0;
};

}  // namespace tessera
