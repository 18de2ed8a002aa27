// Weights from a mapped checkpoint into a device's buffer: a slice for one rank, converted to the type it computes in.
//
//   // rank 1 of 2 of a column-parallel weight [out, in]
//   TRY(copy_tensor(w, {.dim = 0, .begin = out / 2, .size = out / 2}, StoredDtype::kBF16, buffer));
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {

// Indices begin … begin + size - 1 of one dimension, all of the others. size < 0: the whole tensor.
struct TensorSlice {
  std::int64_t dim = 0;
  std::int64_t begin = 0;
  std::int64_t size = -1;
};

// The slice of a row-major tensor as `num_runs` runs of `run` elements each, the first at `start`, then each `stride`
// on.
struct SliceRuns {
  std::int64_t num_runs = 0;
  std::int64_t run = 0;
  std::int64_t stride = 0;
  std::int64_t start = 0;
  std::int64_t num_elements() const { return num_runs * run; }
  // Elements first … first + count - 1 of the slice, cut off at the end of a run, or whole runs: the longest such
  // piece of at most `count` elements. Precondition: 0 <= first < num_elements(), count >= 1.
  SliceRuns piece(std::int64_t first, std::int64_t count) const;
};
// invalid_argument where the slice leaves the shape.
Result<SliceRuns> slice_runs(std::span<const std::int64_t> shape, const TensorSlice& slice);

// Writes the slice, dense and row-major, to `dst`, which must be exactly as long. F32, F16 and BF16 convert into each
// other: rounded to nearest even, beyond F16's range to infinity, NaN stays NaN. Any other type only copies to itself.
// Any alignment. Uses OpenMP's threads where the build has it; reads pages from disk as it goes.
Status copy_runs(const StoredTensor& src, const SliceRuns& runs, StoredDtype dst_dtype, std::span<std::byte> dst);
Status copy_tensor(const StoredTensor& src, const TensorSlice& slice, StoredDtype dst_dtype, std::span<std::byte> dst);
inline Status copy_tensor(const StoredTensor& src, StoredDtype dst_dtype, std::span<std::byte> dst) {
  return copy_tensor(src, TensorSlice{}, dst_dtype, dst);
}

}  // namespace tessera
