// What the copy engine of Hopper has to know of a tensor of which it copies boxes (box_copy.cuh).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera {

struct TensorBox {
  std::int64_t size;    // of the tensor in this dimension
  std::int64_t stride;  // in elements, of 16 bytes' multiples; 1 in the first dimension
  int box;              // elements in the box
};

// Where the 16-byte chunks of a box's row of 128 bytes lie in shared memory.
enum class Swizzle : bool { kNone, k128Bytes };

// A tensor of 16-bit elements at `data`, a multiple of 16 bytes; the fastest dimension first. A swizzled box's rows
// have at most 128 bytes. The map holds the address: it is valid as long as the memory is.
Result<CUtensorMap> encode_tensor_map(ir::DType dtype, const void* data, std::span<const TensorBox> dimensions,
                                      Swizzle swizzle = Swizzle::k128Bytes);

// Matrices of weights, one behind the other, whose rows come to shared memory in groups of 16: 8, and the 8 that are
// `second` rows further. A group begins `first` rows after the one before it. Gates above as many ups, n rows of
// either: first = 8, second = n, so that 8 gates and their ups alternate.
struct RowGroups {
  std::int64_t matrices;
  std::int64_t rows;     // of a matrix, a multiple of 16
  std::int64_t columns;  // in elements of two bytes
  std::int64_t first;
  std::int64_t second;
};

// Boxes of so many rows, a multiple of 16, and columns of one matrix, as encode_tensor_map() has them. Coordinates:
// column, 0, 0, group, matrix.
Result<CUtensorMap> encode_row_groups(ir::DType dtype, const void* data, const RowGroups& weights, int box_rows,
                                      int box_columns);

}  // namespace tessera
