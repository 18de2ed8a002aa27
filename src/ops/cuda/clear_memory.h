// Sets device memory to zero before the first launch that reads it.
#pragma once

#include <cstddef>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Sets `bytes` bytes of the current device's memory to zero and waits until they are zero. The function must not be
// called while a stream of this thread records a graph. `name` begins the error message.
Status clear_memory(std::byte* memory, std::size_t bytes, std::string_view name);

}  // namespace tessera
