// Reads a matrix that is stored as blocks of a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// Borrows the file's bytes. Const functions are thread-safe.
class StoredBlocks {
 public:
  // `data` points to the first row. All numbers are multiplied by `factor`. Preconditions: is_readable(type), and the
  // type's block size divides `cols`.
  StoredBlocks(BlockType type, const std::byte* data, std::int64_t cols, float factor = 1);

  // Returns whether values of this type can be converted to numbers.
  static bool is_readable(BlockType type);

  std::int64_t cols() const { return cols_; }
  float factor() const { return factor_; }
  std::int64_t block_elements() const { return block_elements_; }
  std::int64_t block_bytes() const { return block_bytes_; }
  std::int64_t row_bytes() const { return row_bytes_; }
  const std::byte* row(std::int64_t index) const { return data_ + index * row_bytes_; }
  // Returns the rest of the matrix, which begins with row `first`.
  StoredBlocks from_row(std::int64_t first) const { return {type_, row(first), cols_, factor_}; }

  // Writes elements (row, col) … (row, col + count − 1) to `to`. The range may begin and end within blocks.
  void read(std::int64_t row, std::int64_t col, std::int64_t count, float* to) const;

 private:
  BlockType type_;
  const std::byte* data_;
  std::int64_t cols_;
  std::int64_t block_elements_;
  std::int64_t block_bytes_;
  std::int64_t row_bytes_;
  float factor_;
};

}  // namespace tessera
