// How fast this machine reads memory: what a decode step, which reads every weight once, is measured
// against.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"

namespace tessera::cli {

struct MemoryBandwidth {
  std::int64_t bytes = 0;       // read in one pass: 1 GiB or 4 × L3, whichever is more
  double bytes_per_second = 0;  // of the fastest pass
};

// Reads a block far larger than the caches with as many threads as kernels use. About a second. Fails
// with kResourceExhausted where the block cannot be had.
Result<MemoryBandwidth> measure_memory_bandwidth();

}  // namespace tessera::cli
