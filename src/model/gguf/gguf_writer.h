// Writes GGUF files of version 3. The tensors need not fit in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_metadata.h"
#include "tessera/model/weights/tensor_writer.h"
#include "tessera/ops/quantised/block_types.h"

namespace tessera {

struct GgufLayout {
  std::string name;
  BlockType type = BlockType::kF32;
  std::vector<std::int64_t> shape;  // rows first, as everywhere in this engine; at least one dimension

  std::int64_t rows() const;  // product of all dimensions except the last
  std::int64_t row_bytes() const;
  std::int64_t bytes() const { return rows() * row_bytes(); }
};

// Writes to a temporary file beside `path` and renames it when it is complete. content.fill() is called for whole rows.
// Returns invalid_argument for a name that is too long or used twice, a shape with more dimensions than the format
// allows, and a type whose block size does not divide the row length. Errors of writing are those of ReplacementFile.
// An error of `content` is returned unchanged.
Status write_gguf(const std::string& path, const GgufMetadata& metadata, std::span<const GgufLayout> tensors,
                  const TensorContent& content);

}  // namespace tessera
