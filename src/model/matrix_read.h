// Elements of a matrix that a checkpoint does not store as such: transposed, or quantised with scales.
//
// `runs` counts the elements of the matrix [rows, cols], row-major, as slice_runs() of that shape gives them; they go
// to `dst`, dense, converted to `dtype` (F32, F16 or BF16). invalid_argument where shapes or sizes disagree. Uses
// OpenMP's threads where the build has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/safetensors.h"
#include "tessera/model/tensor_copy.h"

namespace tessera {

// `stored` is [cols, rows].
Status read_transposed(const StoredTensor& stored, const SliceRuns& runs, StoredDtype dtype, std::span<std::byte> dst);

// Row-major, one for each block of block_rows by block_cols elements; blocks at the edges may be cut off.
struct BlockScales {
  const StoredTensor& tensor;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
};

// `stored` is [rows, cols]; each element is multiplied by its block's scale, in float32.
Status read_scaled(const StoredTensor& stored, const BlockScales& scales, const SliceRuns& runs, StoredDtype dtype,
                   std::span<std::byte> dst);

}  // namespace tessera
