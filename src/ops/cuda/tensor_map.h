// Tensor maps: descriptions of tensors from which Hopper's copy engine copies boxes (box_copy.cuh).
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
  std::int64_t stride;  // in elements; a multiple of 16 bytes, except 1 in the first dimension
  int box;              // elements in the box
};

// Says how the 16-byte chunks of a box's row of at most 64 or 128 bytes are permuted in shared memory.
enum class Swizzle : std::uint8_t { kNone, k64Bytes, k128Bytes };

// Describes a tensor of 16-bit elements at `data`, which is aligned to 16 bytes. The fastest dimension comes first. The
// map holds the address, so it is valid as long as the memory is.
Result<CUtensorMap> encode_tensor_map(ir::DType dtype, const void* data, std::span<const TensorBox> dimensions,
                                      Swizzle swizzle = Swizzle::k128Bytes);

// Weight matrices, one behind the other, whose rows come to shared memory in groups of 16: 8 rows, and the 8 rows that
// are `second` rows further. A group begins `first` rows after the group before it. For example, if a matrix has n rows
// of gate above n rows of up, first = 8 and second = n make 8 gate rows and their up rows alternate.
struct RowGroups {
  std::int64_t matrices;
  std::int64_t rows;     // rows of a matrix, a multiple of 16
  std::int64_t columns;  // in elements of two bytes
  std::int64_t first;
  std::int64_t second;
};

// Describes boxes of a number of rows, a multiple of 16, and a number of columns of one matrix, as encode_tensor_map()
// does. Coordinates: column, 0, 0, group, matrix.
Result<CUtensorMap> encode_row_groups(ir::DType dtype, const void* data, const RowGroups& weights, int box_rows,
                                      int box_columns, Swizzle swizzle = Swizzle::k128Bytes);

}  // namespace tessera
