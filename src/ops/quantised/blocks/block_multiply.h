// Multiplies rows of inputs (block_input.h) by some rows of a packed matrix, on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/quantised/blocks/block_input.h"
#include "tessera/ops/quantised/blocks/block_matrix.h"

namespace tessera::blocks {

inline constexpr std::int64_t kMostMultiplied = 64;  // maximum number of rows of w in a call of multiply()

// Returns the bytes of scratch that multiply() needs. The scratch must be aligned to 64 bytes.
std::size_t multiply_scratch_bytes(const BlockMatrix& w);

// Computes sums[r · kMostMultiplied + n] = x[row + r] · w[first + n] for r < rows and n < count. `first` is a multiple
// of sixteen, and count <= kMostMultiplied. The sums from n = count to the next multiple of sixteen are written too.
void multiply(const BlockMatrix& w, std::int64_t first, std::int64_t count, const Inputs& x, std::int64_t row,
              std::int64_t rows, float* sums, std::byte* scratch);

}  // namespace tessera::blocks
