// A weight consists of parts (WeightPart). A part may be padded with zero rows and columns, because kernels are faster
// at certain sizes. The code that declares the padded weight must ensure that the zeros do not change any result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// The size of a part as a matrix. A vector is one row. In tensors with more dimensions, all dimensions except the last
// form the rows.
struct PartExtent {
  std::int64_t rows = 0;  // rows of the slice
  std::int64_t cols = 0;
  std::int64_t padded_rows = 0;  // rows in the weight
  std::int64_t padded_cols = 0;
  std::int64_t num_elements() const { return padded_rows * padded_cols; }
  bool is_padded() const { return padded_rows > rows || padded_cols > cols; }
};

// Returns the size of a part. Returns invalid_argument if the slice exceeds the shape, or if part.padded is smaller
// than the slice or has another number of dimensions.
Result<PartExtent> part_extent(const WeightPart& part);

// Pads rows in place. `to` begins with `rows` dense rows of `row_bytes` bytes. Moves these rows so that each row begins
// `padded_row_bytes` bytes after the beginning of the previous row, and sets all other bytes to zero. Preconditions:
// row_bytes <= padded_row_bytes, and `to` has room for `rows` padded rows.
void pad_rows(std::span<std::byte> to, std::int64_t rows, std::size_t row_bytes, std::size_t padded_row_bytes);

}  // namespace tessera
