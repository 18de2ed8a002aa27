// What a kernel may take of a multiprocessor's shared memory, and how many of its blocks fit.
#pragma once

#include <cstddef>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Bytes of dynamic shared memory that a block may be allowed on the current device.
Result<std::size_t> most_shared_memory(std::string_view name);
// Allows a kernel `bytes` of dynamic shared memory, also above 48 KiB. `name` begins the error.
Status allow_shared_memory(const void* kernel, std::size_t bytes, std::string_view name);
// Blocks of a kernel that one multiprocessor of the current device runs at once, at least 1.
Result<int> blocks_per_multiprocessor(const void* kernel, int threads, std::size_t shared_bytes, std::string_view name);

// Clusters of so many blocks that the current device runs at once, at least 1. Hopper and newer.
Result<int> clusters_at_once(const void* kernel, int threads, int cluster, std::size_t shared_bytes,
                             std::string_view name);

}  // namespace tessera
