// A CPU device with the properties that a test gives it, for decisions that depend on properties alone.
#pragma once

#include <utility>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera::testing {

class DescribedDevice final : public CpuDevice {
 public:
  explicit DescribedDevice(DeviceProperties properties) : CpuDevice(std::move(properties)) {}
  // All of it: nothing else runs on it.
  std::int64_t available_bytes() const override { return properties().memory_bytes; }
};

}  // namespace tessera::testing
