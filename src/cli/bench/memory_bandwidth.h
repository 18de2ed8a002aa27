// Measures how fast a device reads its memory. A decode step reads every weight once and is compared with this.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera::cli {

struct MemoryBandwidth {
  std::int64_t bytes = 0;       // bytes moved in one pass: 1 GiB or, on a CPU, 4 × L3, whichever is more
  double bytes_per_second = 0;  // of the fastest pass
};

// On a CPU: reads a block far larger than the caches with as many threads as kernels use. On other devices: copies one
// block to another and counts the bytes read and written. Takes about a second at most. kResourceExhausted if the
// memory cannot be allocated.
Result<MemoryBandwidth> measure_memory_bandwidth(Device& device);

}  // namespace tessera::cli
