// Parts that take more room in a weight than they have elements: zeros follow their rows and columns, so that kernels
// get sizes at which they are fast. The code that pads must ensure that the zeros change no result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// The part as a matrix. A vector is one row; in tensors with more dimensions, all but the last one form the rows.
struct PartExtent {
  std::int64_t rows = 0;  // rows of the slice
  std::int64_t cols = 0;
  std::int64_t padded_rows = 0;  // rows in the weight
  std::int64_t padded_cols = 0;
  std::int64_t num_elements() const { return padded_rows * padded_cols; }
  bool is_padded() const { return padded_rows > rows || padded_cols > cols; }
};

// Fails with invalid_argument if the slice exceeds the shape, or if `padded` is smaller than the slice or has another
// rank.
Result<PartExtent> part_extent(const WeightPart& part);

// Spreads the `rows` dense rows of `row_bytes` at the start of `to` so that they are `padded_row_bytes` apart, and
// clears all other bytes. Precondition: row_bytes <= padded_row_bytes, and `to` holds `rows` padded rows.
void pad_rows(std::span<std::byte> to, std::int64_t rows, std::size_t row_bytes, std::size_t padded_row_bytes);

}  // namespace tessera
