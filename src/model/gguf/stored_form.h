// Describes tensors of GGUF files as tensors of a checkpoint. The elements keep their order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_file.h"
#include "tessera/model/gguf/stored_blocks.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {

// Returns the element type that a checkpoint has for `type`, if `type` is a plain number type such as F32 or I8.
// Returns nothing for a quantised type such as Q4_0, whose numbers are stored in blocks.
std::optional<StoredDtype> plain_dtype(BlockType type);

// Returns the tensor as a matrix whose rows are the tensor's rows.
StoredBlocks matrix_of(const GgufTensor& tensor);

// Returns the tensor under another name and shape. Blocks become F32 numbers while they are read.
StoredTensor same_elements(std::string name, const GgufTensor& tensor, std::vector<std::int64_t> shape);

// Returns unimplemented, with the tensor's name, if its type cannot be read. `path` is the file's path.
Status check_readable(const std::string& path, const GgufTensor& tensor);

// Returns the error `<file>: tensor <name>: shape is <shape>; accepted: <accepted>`, which is data_loss.
Status wrong_shape(const std::string& path, const GgufTensor& tensor, const std::string& accepted);

}  // namespace tessera
