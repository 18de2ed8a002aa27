// How many ranks the device under test has room for.
#pragma once

#include "tessera/device/testing/environment.h"
#include "tessera/ops/device_registry.h"

namespace tessera::testing {

// GPUs of this process are as many as it is shown; a CPU has any number of ranks.
inline bool has_devices_for(int ranks) {
  return built_in_devices().open(test_device_name(), {.rank = ranks - 1, .ranks = ranks}).ok();
}

}  // namespace tessera::testing
