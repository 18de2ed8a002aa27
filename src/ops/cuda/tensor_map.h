// Tensor maps. A tensor map describes a tensor to Hopper's copy engine (TMA), which copies boxes of it (box_copy.cuh).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera {

struct TensorBox {
  std::int64_t size;    // size of the tensor in this dimension
  std::int64_t stride;  // in elements: 1 in the first dimension, a multiple of 16 bytes in the others
  int box;              // elements of the box in this dimension
};

// The swizzle that a copy to shared memory applies to the 16-byte chunks of a box's row. With k64Bytes a row has at
// most 64 bytes, and with k128Bytes at most 128.
enum class Swizzle : std::uint8_t { kNone, k64Bytes, k128Bytes };

// Describes a tensor of 16-bit elements at `data`, which is aligned to 16 bytes. The fastest dimension comes first. The
// map holds the address, so it is valid as long as the memory is.
Result<CUtensorMap> encode_tensor_map(ir::DType dtype, const void* data, std::span<const TensorBox> dimensions,
                                      Swizzle swizzle = Swizzle::k128Bytes);

// Weight matrices that are contiguous in memory. Their rows are copied to shared memory in groups of 16. Group g has
// the 8 rows that begin with row g · `first`, and the 8 rows that begin `second` rows later. For example, if a matrix
// has n gate rows above n up rows, first = 8 and second = n give each group 8 gate rows and the 8 up rows that belong
// to them.
struct RowGroups {
  std::int64_t matrices;
  std::int64_t rows;     // number of rows of a matrix, a multiple of 16
  std::int64_t columns;  // number of columns, of two bytes each
  std::int64_t first;
  std::int64_t second;
};

// Makes the tensor map of `weights`, which begin at `data`. A box has `box_rows` rows (a multiple of 16) and
// `box_columns` columns of one matrix. The coordinates of a box are column, 0, 0, group, matrix. In all other respects
// the function works like encode_tensor_map().
Result<CUtensorMap> encode_row_groups(ir::DType dtype, const void* data, const RowGroups& weights, int box_rows,
                                      int box_columns, Swizzle swizzle = Swizzle::k128Bytes);

}  // namespace tessera
