// How fast a device reads its memory: what a decode step, which reads every weight once, is measured against.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera::cli {

struct MemoryBandwidth {
  std::int64_t bytes = 0;       // moved in one pass: 1 GiB or, on a CPU, 4 × L3, whichever is more
  double bytes_per_second = 0;  // of the fastest pass
};

// On a CPU: reads a block far larger than the caches with as many threads as kernels use. On another device: copies
// one block to another, bytes read and bytes written counted. About a second at most. Fails with kResourceExhausted
// where the memory cannot be had.
Result<MemoryBandwidth> measure_memory_bandwidth(Device& device);

}  // namespace tessera::cli
