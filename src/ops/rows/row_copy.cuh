// Copies rows by row number, for the CUDA kernels of embedding and gather_rows, and selects the word size of a copy.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/ops/rows/gather.h"

namespace tessera::cuda {

// Makes an operator that copies rows. `name` is a string literal.
std::unique_ptr<BoundOp> make_row_copy(const char* name, const RowCopy& copy);

// Calls f.operator()<Word>() with the widest type whose size (16, 4, 2 or 1 bytes) divides `bytes`.
template <class F>
auto dispatch_word(std::int64_t bytes, F&& f) {
  if (bytes % 16 == 0) return f.template operator()<uint4>();
  if (bytes % 4 == 0) return f.template operator()<std::uint32_t>();
  if (bytes % 2 == 0) return f.template operator()<std::uint16_t>();
  return f.template operator()<std::uint8_t>();
}

}  // namespace tessera::cuda
