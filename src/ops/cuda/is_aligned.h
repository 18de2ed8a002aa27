// Tells whether kernels may copy 16 bytes at a time.
#pragma once

#include <cstdint>

namespace tessera {

// Returns whether 16-byte copies may start at this address.
inline bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace tessera
