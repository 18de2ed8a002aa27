// Converts rows of MXFP4 (moe_experts.h) to numbers, for the CPU's kernels.
#pragma once

#include <cstdint>

namespace tessera {

// Writes `blocks` times 32 values to y. Each block has 16 bytes in `packed` and one byte in `scales`. T is float,
// BFloat16 or Float16. Values are exact in the first two types, and are rounded to Float16.
template <class T>
void unpack_mxfp4(const std::uint8_t* packed, const std::uint8_t* scales, T* y, std::int64_t blocks);

}  // namespace tessera
