// Copies one rank's slice of a weight from a mapped checkpoint to a buffer, and converts it to the type that the rank
// computes in.
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

// The part of a tensor with indices begin … begin + size - 1 of dimension `dim`, and all indices of the other
// dimensions. If size < 0, the slice is the whole tensor.
struct TensorSlice {
  std::int64_t dim = 0;
  std::int64_t begin = 0;
  std::int64_t size = -1;
};

// A slice of a row-major tensor as `num_runs` contiguous runs of `run` elements each. Run i begins at element start + i
// · stride of the tensor.
struct SliceRuns {
  std::int64_t num_runs = 0;
  std::int64_t run = 0;
  std::int64_t stride = 0;
  std::int64_t start = 0;
  std::int64_t num_elements() const { return num_runs * run; }
  // Returns the longest piece of the slice that begins at element `first`, has at most `count` elements, and is either
  // a part of one run or a number of whole runs. Precondition: 0 <= first < num_elements(), count >= 1.
  SliceRuns piece(std::int64_t first, std::int64_t count) const;
};
// Returns a slice's runs. Returns invalid_argument if the slice exceeds the shape.
Result<SliceRuns> slice_runs(std::span<const std::int64_t> shape, const TensorSlice& slice);

// Writes the slice, dense and row-major, to `dst`, which must have exactly the slice's size. F32, F16 and BF16 can be
// converted into one another. Values are rounded to nearest even, values beyond F16's range become infinite, and NaN
// stays NaN. Other types are copied without conversion. Any alignment is allowed. Uses OpenMP threads if the build has
// them. Pages are read from disk as the copy proceeds.
Status copy_runs(const StoredTensor& src, const SliceRuns& runs, StoredDtype dst_dtype, std::span<std::byte> dst);
Status copy_tensor(const StoredTensor& src, const TensorSlice& slice, StoredDtype dst_dtype, std::span<std::byte> dst);
inline Status copy_tensor(const StoredTensor& src, StoredDtype dst_dtype, std::span<std::byte> dst) {
  return copy_tensor(src, TensorSlice{}, dst_dtype, dst);
}

}  // namespace tessera
