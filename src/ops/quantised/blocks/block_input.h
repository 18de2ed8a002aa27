// The activations of a product with packed blocks: every 32 values of a row become integers with one scale.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ir/type.h"

namespace tessera::blocks {

// 32 neighbouring values of a row: x[i] ≈ values[i] · scale. Values are rounded to the nearest, ties to even.
struct Input {
  std::int8_t values[32];        // −127 … 127
  float scale;                   // greatest magnitude / 127; NaN if a value is not finite
  float sum;                     // scale · the sum of values
  std::int32_t minus_sum;        // − the sum of values
  std::int32_t minus_halves[2];  // − the sums of the first and of the last sixteen values
  std::int32_t unused[3];        // padding to the 64 bytes of a cache line
};
static_assert(sizeof(Input) == 64);

// Kernels go through the columns in chunks of 256. A chunk has up to eight parts of 32 columns.
inline constexpr int kChunkParts = 8;

// Rows of inputs. The input of a part is at[(chunk · rows + row) · kChunkParts + part mod kChunkParts], so that a
// chunk's inputs of all rows are neighbours.
struct Inputs {
  const Input* at;
  std::int64_t rows;
  std::int64_t parts;  // number of parts of 32 columns in a row
};
// Returns the bytes of the inputs of a matrix with `rows` rows of `cols` columns.
std::size_t input_bytes(std::int64_t rows, std::int64_t cols);

// Converts row `row` of a matrix of `rows` rows to inputs. `x` points to that row: `cols` values of `dtype`, where cols
// is a multiple of 32. `to` points to the inputs of the whole matrix. Runs on the calling thread.
void make_inputs(const std::byte* x, ir::DType dtype, std::int64_t cols, std::int64_t rows, std::int64_t row,
                 Input* to);

}  // namespace tessera::blocks
