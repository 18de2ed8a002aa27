// Quantises an unquantised matrix while it is read. A call of read_rounded() writes one of three results, which the
// caller chooses: the quantised values, the scales of blocks, or the factor of the whole matrix (quantise_values.h).
//
// A slice has the same scales as the whole matrix, because a block's scale depends on all elements of the block, even
// if the slice contains only some of them. The functions need memory for the scales of the elements that are read, and
// a few KiB for each thread. They use OpenMP threads if the build has them.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Returns the factor of the matrix. If the rounding has a factor, this reads all elements of the matrix. Returns
// invalid_argument if an element is infinite or NaN. The message names the tensor and the element. Precondition of this
// function and of read_rounded(): `stored` is F32, F16 or BF16 and has the storage's shape.
Result<float> read_factor(const StoredTensor& stored, const RoundedStorage& storage);

// Writes elements of the part of a weight that `storage` describes to `dst`, without gaps. `runs` says which elements.
// storage.content says whether the part contains values, scales or the factor. `factor` is the result of read_factor().
// If `importance` is not empty, it has an importance for each column of the matrix. In this case search_scales()
// chooses the scales, and its preconditions apply. Returns the same errors as read_factor().
Status read_rounded(const StoredTensor& stored, const RoundedStorage& storage, float factor, const SliceRuns& runs,
                    std::span<std::byte> dst, std::span<const float> importance = {});

}  // namespace tessera
