// Device memory that is zero before the first launch which reads it.
#pragma once

#include <cstddef>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Sets so many bytes of the current device's memory to zero, and returns when they are. Not while a stream of this
// thread records. `name` begins the error.
Status clear_memory(std::byte* memory, std::size_t bytes, std::string_view name);

}  // namespace tessera
