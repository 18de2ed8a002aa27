// Queries about a kernel's shared memory: how much a block may use, and how many blocks run at once if they use a given
// amount.
#pragma once

#include <cstddef>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Returns the limit of a block's dynamic shared memory on the current device, in bytes.
Result<std::size_t> most_shared_memory(std::string_view name);
// Lets a kernel use `bytes` of dynamic shared memory, also above 48 KiB. `name` begins the error message.
Status allow_shared_memory(const void* kernel, std::size_t bytes, std::string_view name);
// Returns the number of blocks of a kernel that one multiprocessor of the current device runs at once, at least 1.
Result<int> blocks_per_multiprocessor(const void* kernel, int threads, std::size_t shared_bytes, std::string_view name);

// Returns the number of clusters of `cluster` blocks that the current device runs at once, at least 1. Needs Hopper or
// newer.
Result<int> clusters_at_once(const void* kernel, int threads, int cluster, std::size_t shared_bytes,
                             std::string_view name);

}  // namespace tessera
