// Parts of weights that take more room in the weight than they have elements: zeros lie behind their rows and columns,
// so that kernels get sizes that they are fast at. Whoever pads sees to it that zeros change no result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// The part as a matrix: a vector is one row, of tensors with more dimensions all but the last one make rows.
struct PartExtent {
  std::int64_t rows = 0;  // of the slice
  std::int64_t cols = 0;
  std::int64_t padded_rows = 0;  // in the weight
  std::int64_t padded_cols = 0;
  std::int64_t num_elements() const { return padded_rows * padded_cols; }
  bool is_padded() const { return padded_rows > rows || padded_cols > cols; }
};

// invalid_argument where the slice leaves the shape, or what is padded has another rank or is smaller than the slice.
Result<PartExtent> part_extent(const WeightPart& part);

// `to` begins with `rows` dense rows of `row_bytes`. Moves them apart, `padded_row_bytes` from one to the next, and
// clears all other bytes. Precondition: row_bytes <= padded_row_bytes and to holds `rows` rows of that.
void pad_rows(std::span<std::byte> to, std::int64_t rows, std::size_t row_bytes, std::size_t padded_row_bytes);

}  // namespace tessera
