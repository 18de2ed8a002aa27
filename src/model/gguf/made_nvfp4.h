// Makes the tensors in which safetensors hold NVFP4 from a GGUF file's blocks of NVFP4. No number changes.
#pragma once

#include <memory>

#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/gguf/stored_blocks.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {

// Returns U8 elements [rows, cols / 2] with the bits of E2M1. Each byte has two neighbours, the first in the lower
// half. The rows are permuted as `rows` says.
std::shared_ptr<const TensorElements> make_nvfp4_values(const StoredBlocks& matrix, const StoredOrder& rows);
// Returns F8_E4M3 elements [rows, cols / 16], the scales of groups of 16 values.
std::shared_ptr<const TensorElements> make_nvfp4_scales(const StoredBlocks& matrix, const StoredOrder& rows);

}  // namespace tessera
