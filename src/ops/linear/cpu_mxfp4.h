// Rows of MXFP4 (moe_experts.h) as numbers, for the CPU's kernels.
#pragma once

#include <cstdint>

namespace tessera {

// y: `blocks` times 32 values, of which `packed` has 16 bytes and `scales` one; rounded to T where it is float16, and
// exact otherwise. Instantiated for float, BFloat16 and Float16.
template <class T>
void unpack_mxfp4(const std::uint8_t* packed, const std::uint8_t* scales, T* y, std::int64_t blocks);

}  // namespace tessera
