// Checks whether a test has enough devices for its ranks, and opens one for each rank.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/ops/device_registry.h"

namespace tessera::testing {

// Returns whether there is a device for each rank. A GPU test uses the GPUs that the process can see. On a CPU, any
// number of ranks share the host.
inline bool has_devices_for(int ranks) {
  return built_in_devices().open(test_device_name(), {.rank = ranks - 1, .ranks = ranks}).ok();
}

// Opens a rank's device. A CPU device has one thread.
inline Result<std::unique_ptr<Device>> open_rank_device(const Communicator& communicator) {
  if (test_device_name().starts_with("cpu")) return TRY(CpuDevice::create({.threads = 1}));
  return built_in_devices().open(test_device_name(),
                                 {.rank = communicator.world_rank(), .ranks = communicator.world_size()});
}

}  // namespace tessera::testing
