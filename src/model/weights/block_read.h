// Reads a matrix that is stored as blocks of a GGUF file, and converts it to the layout that kernels expect.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Writes elements of `stored` to `dst`. `runs` gives the row-major indices of these elements, and `dst` has exactly
// their size. An element is a byte of a block, a byte of codes, or a scale, as storage.content says. The runs must
// cover whole rows, or the same columns in several rows. These columns must be whole blocks or, for codes and scales,
// whole groups. Blocks are packed in groups of sixteen rows (packed_layout.h). The first group begins with the first
// row that is read. Returns invalid_argument if the tensor has no blocks of this type, if a run begins or ends within a
// block or a group of codes, or if a scale does not fit in float16. Uses OpenMP threads if the build has them.
Status read_blocks(const StoredTensor& stored, const BlockStorage& storage, const SliceRuns& runs,
                   std::span<std::byte> dst);

}  // namespace tessera
