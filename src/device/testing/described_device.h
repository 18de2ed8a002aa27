// A CPU device with properties that a test chooses, for tests of decisions that depend only on properties.
#pragma once

#include <utility>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera::testing {

class DescribedDevice final : public CpuDevice {
 public:
  explicit DescribedDevice(DeviceProperties properties) : CpuDevice(std::move(properties)) {}
  // All memory is available, as nothing else runs on the device.
  std::int64_t available_bytes() const override { return properties().memory_bytes; }
};

}  // namespace tessera::testing
