// Converts rows of a matrix of GGUF's blocks to numbers, for the CPU's kernels.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/blocks/block_matrix.h"

namespace tessera {

// Writes the rows [first, first + count), `cols` numbers each, to y. The numbers are those of dequantise(), rounded to
// T: float, BFloat16 or Float16. Runs on the calling thread.
template <class T>
void block_rows(const BlockMatrix& m, std::int64_t first, std::int64_t count, T* y);

}  // namespace tessera
