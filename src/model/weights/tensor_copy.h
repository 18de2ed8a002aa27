// Copies weights from a mapped checkpoint into a device's buffer: a slice for one rank, converted to the type in which
// the rank computes.
//
//   // rank 1 of 2 of a column-parallel weight [out, in]
//   TRY(copy_tensor(w, {.dim = 0, .begin = out / 2, .size = out / 2}, StoredDtype::kBF16, buffer));
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {

// Indices begin … begin + size - 1 of one dimension, and all indices of the others. size < 0: the whole tensor.
struct TensorSlice {
  std::int64_t dim = 0;
  std::int64_t begin = 0;
  std::int64_t size = -1;
};

// The slice of a row-major tensor as `num_runs` runs of `run` elements each. The first run begins at `start`, each
// further one `stride` later.
struct SliceRuns {
  std::int64_t num_runs = 0;
  std::int64_t run = 0;
  std::int64_t stride = 0;
  std::int64_t start = 0;
  std::int64_t num_elements() const { return num_runs * run; }
  // Returns the longest piece of at most `count` elements from element `first` of the slice that is either a part of
  // one run or a number of whole runs. Precondition: 0 <= first < num_elements(), count >= 1.
  SliceRuns piece(std::int64_t first, std::int64_t count) const;
};
// Returns a slice's runs, or invalid_argument if the slice exceeds the shape.
Result<SliceRuns> slice_runs(std::span<const std::int64_t> shape, const TensorSlice& slice);

// Writes the slice, dense and row-major, to `dst`, which must have exactly its length. F32, F16 and BF16 convert into
// each other: rounded to nearest even, beyond F16's range to infinity; NaN stays NaN. Other types are only copied to
// themselves. Any alignment. Uses OpenMP's threads if the build has it; reads pages from disk as it proceeds.
Status copy_runs(const StoredTensor& src, const SliceRuns& runs, StoredDtype dst_dtype, std::span<std::byte> dst);
Status copy_tensor(const StoredTensor& src, const TensorSlice& slice, StoredDtype dst_dtype, std::span<std::byte> dst);
inline Status copy_tensor(const StoredTensor& src, StoredDtype dst_dtype, std::span<std::byte> dst) {
  return copy_tensor(src, TensorSlice{}, dst_dtype, dst);
}

}  // namespace tessera
