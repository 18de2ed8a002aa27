// Memory for checks, in place of the planned arena (MemoryPlanKind::kIsolated). Every value has its own allocation,
// which is filled with NaN and lies between two guard zones. No two values share bytes, so an error in the memory plan
// shows as a difference from the results with the planned arena. The guard zones reveal a kernel that writes past its
// result.
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
  static constexpr std::size_t kGuardBytes = 1024;  // size of each guard zone
  // This byte repeated is NaN in every floating-point type, and -1 in the signed integer types.
  static constexpr std::uint8_t kPoison = 0xff;

  // The device must outlive this object.
  explicit IsolatedMemory(Device& device) : device_(device) {}

  // Allocates `bytes` bytes and returns their address. check_guards() uses `name` in its error.
  Result<DeviceAddress> allocate(std::string name, std::size_t bytes, Stream& stream);
  // Fills all values and guard zones with kPoison again.
  Status poison(Stream& stream);
  // Returns an error that names the first value whose guard zones were overwritten. Waits for the stream.
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
