// Reads a matrix of a GGUF file's blocks into the order in which kernels read it.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Writes the content of rows of `stored` to `dst`, which is as long as the runs. `runs` counts elements of the part
// (BlockStorage), row-major: whole rows, or the same whole blocks of several rows. Blocks are packed (packed_layout.h),
// the first row as the first of sixteen. invalid_argument if the tensor has no blocks of this type, if the runs divide
// a block, or if float16 cannot hold a scale. Uses OpenMP's threads if the build has it.
Status read_blocks(const StoredTensor& stored, const BlockStorage& storage, const SliceRuns& runs,
                   std::span<std::byte> dst);

}  // namespace tessera
