// Measures how fast a device reads its memory. A decode step reads every weight once, so this rate limits how fast the
// step can be.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera::cli {

struct MemoryBandwidth {
  // The bytes moved in one pass. On a CPU: four times the size of the L3 cache, but at least 1 GiB and at most 4 GiB.
  // On any other device: 1 GiB.
  std::int64_t bytes = 0;
  double bytes_per_second = 0;  // rate of the fastest pass
};

// Measures the bandwidth, for about a second at most. On a CPU, the threads that run kernels read a block that is far
// larger than the caches. Any other device copies one block to another, and both the bytes read and the bytes written
// count. Returns kResourceExhausted if the memory cannot be allocated.
Result<MemoryBandwidth> measure_memory_bandwidth(Device& device);

}  // namespace tessera::cli
