// A CPU device with properties that a test chooses, for tests of decisions that depend only on properties.
#pragma once

#include <memory>
#include <utility>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera::testing {

class DescribedDevice final : public CpuDevice {
 public:
  explicit DescribedDevice(DeviceProperties properties) : CpuDevice(std::move(properties)) {}
  // All memory is available, as nothing else runs on the device.
  std::int64_t available_bytes() const override { return properties().memory_bytes; }
};

// Returns a CPU device that reports that it is a GPU, for tests of code that treats a GPU's memory differently from a
// CPU's.
inline std::unique_ptr<CpuDevice> distant_device(CpuDevice::Options options) {
  DeviceProperties properties = CpuDevice::create(options).value()->properties();
  properties.on_host = false;
  return std::make_unique<DescribedDevice>(std::move(properties));
}

}  // namespace tessera::testing
