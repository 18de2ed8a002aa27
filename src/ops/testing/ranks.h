// Ranks on the device under test: how many it has room for, and a device for each.
#pragma once

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/ops/comm/collective.h"
#include "tessera/ops/contract/device_registry.h"

namespace tessera::testing {

// GPUs of this process are as many as it is shown; a CPU has any number of ranks.
inline bool has_devices_for(int ranks) {
  return built_in_devices().open(test_device_name(), {.rank = ranks - 1, .ranks = ranks}).ok();
}

// Of one thread on the CPU.
inline Result<std::unique_ptr<Device>> open_rank_device(const Communicator& communicator) {
  if (test_device_name().starts_with("cpu")) return TRY(CpuDevice::create({.threads = 1}));
  return built_in_devices().open(test_device_name(), {.rank = communicator.place(), .ranks = communicator.places()});
}

}  // namespace tessera::testing
