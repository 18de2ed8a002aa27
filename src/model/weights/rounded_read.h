// Reads a matrix of numbers as a quantised one: its values, its scales or its factor (quantise_values.h).
//
// A slice gets what the whole matrix would have there: a block's scale is that of all its elements, whichever of them
// the slice has. Beside the result this needs only the scales of the elements that are read, and a few KiB for each
// thread. Uses OpenMP's threads if the build has it.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Returns the factor of the matrix. If the rounding has one, all elements of the matrix are read for it.
// invalid_argument if an element is infinite or NaN; the message names tensor and element. Precondition, here and
// below: `stored` is F32, F16 or BF16 of the storage's shape.
Result<float> read_factor(const StoredTensor& stored, const RoundedStorage& storage);

// Writes the elements `runs` of the part densely to `dst`; storage.content says what the part holds. `factor` is
// read_factor(). Errors as above.
Status read_rounded(const StoredTensor& stored, const RoundedStorage& storage, float factor, const SliceRuns& runs,
                    std::span<std::byte> dst);

}  // namespace tessera
