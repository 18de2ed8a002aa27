// Reads those parts of a quantised matrix that must be converted: 4-bit values that are packed in words; scales, if the
// checkpoint has one scale for a larger block than the kernels need; and the indices of the columns' groups.
//
// In every function, `runs` says which elements of the part to read. It is the result of slice_runs() for the part's
// shape. The elements are written densely to `dst`. An error names the tensor, the wrong value and what is accepted.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Writes 4-bit values as bytes. Precondition: `words` is I32 and has the shape stored_shape().
Status read_nibbles(const StoredTensor& words, const NibbleStorage& storage, const SliceRuns& runs,
                    std::span<std::byte> dst);
// Writes float32 scales. Precondition: `scales` has a type that GridStorage names.
Status read_grid(const StoredTensor& scales, const GridStorage& storage, const SliceRuns& runs,
                 std::span<std::byte> dst);
// Writes indices as int32. Precondition: `stored` is I32.
Status read_indices(const StoredTensor& stored, const IndexStorage& storage, const SliceRuns& runs,
                    std::span<std::byte> dst);

// Returns invalid_argument if one of these F8_E4M3 scales is not a number above 0.
Status check_small_scales(const StoredTensor& stored, std::span<const std::byte> scales);
// Returns invalid_argument if one of these exponents is 255, which is not a valid scale.
Status check_exponents(const StoredTensor& stored, std::span<const std::byte> exponents);
// Returns invalid_argument if `stored` is not I64[2] or does not contain `rows` and `cols`.
Status check_stored_shape(const StoredTensor& stored, std::int64_t rows, std::int64_t cols);

}  // namespace tessera
