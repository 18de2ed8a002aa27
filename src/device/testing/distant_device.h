// A device for tests of code that treats a GPU's memory differently from a CPU's.
#pragma once

#include <memory>
#include <utility>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera::testing {

// A CPU device that reports that it is a GPU.
class DistantDevice final : public CpuDevice {
 public:
  static std::unique_ptr<DistantDevice> create(CpuDevice::Options options) {
    DeviceProperties properties = CpuDevice::read_properties(std::move(options)).value();
    properties.on_host = false;
    return std::unique_ptr<DistantDevice>(new DistantDevice(std::move(properties)));
  }

 private:
  using CpuDevice::CpuDevice;
};

}  // namespace tessera::testing
