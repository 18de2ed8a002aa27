// A matrix of GGUF's blocks in memory.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// A matrix [rows, cols] in the form of packed_layout.h. It does not own `data`.
struct BlockMatrix {
  BlockType type = BlockType::kQ8_0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::uint8_t* data = nullptr;

  std::int64_t row_bytes() const {
    const BlockTypeInfo& info = block_type_info(type);
    return cols / info.elements * info.bytes;
  }
};

}  // namespace tessera
