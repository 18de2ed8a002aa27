// The form in which the CPU's kernels read block-quantised matrices. Sixteen neighbouring rows are interleaved, so that
// a vector has the same four columns of all of them, and sums of sixteen rows need no additions across lanes.
//
// A packed matrix has the bytes of the plain matrix, [rows, bytes of a row], in another order. If the number of rows is
// not a multiple of sixteen, the rows left over stay plain blocks. Each group of sixteen rows is a list of records of
// 256 columns each (the last may have fewer):
//
//   codes    for each 32 columns: code_bytes() bytes, which consist of the parts below
//   scales   for each block: scale_bytes() bytes, which are the block's fields except the codes, field by field; each
//            field is stored for all sixteen rows, one row after another
//
// A part of the codes is one or more vectors of 64 bytes. A vector has four bytes of each row:
//
//   8 bits   8 vectors; byte b of vector v is column 4 v + b
//   4 bits   4 vectors; the lower half of byte b of vector v is column 4 v + b, the upper half column 16 + 4 v + b
//   2 bits   2 vectors; bits 2 i and 2 i + 1 of byte b of vector v are column 16 v + 4 i + b
//   1 bit    1 vector; bit s of byte b is column 4 s + b
//
// Codes of five bits have a part of 4 bits, then a part of 1 bit with their highest bits. Codes of six bits have parts
// of 4 and 2 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/quantised/block_types.h"

namespace tessera {

inline constexpr std::int64_t kPackedRows = 16;     // number of rows that are interleaved
inline constexpr std::int64_t kPackedColumns = 32;  // number of columns whose codes are packed together
inline constexpr std::int64_t kPackedVector = 64;   // bytes of a vector: four columns of each row
inline constexpr std::int64_t kRecordColumns = 256;

struct PackedLayout {
  // `count` neighbouring fields of a block, with `bytes` bytes each. The first is at byte `at` of the block. In the
  // packed form the bytes of a field stay together.
  struct Fields {
    std::int16_t at;
    std::int16_t bytes;
    std::int16_t count = 1;
  };
  int bits;  // number of bits of a code
  int num_fields;
  Fields fields[5];  // all fields of a block except its codes, in the order of the packed form

  std::int64_t code_bytes() const { return kPackedRows * kPackedColumns * bits / 8; }
  std::int64_t scale_bytes() const;
};

// Returns the layout of a type, or null if matrices of the type stay plain blocks.
const PackedLayout* packed_layout(BlockType type);

// Packs `count` neighbouring rows of a matrix. The index of the first row is a multiple of sixteen. `rows` points to
// the first row, and `packed` points to that row's place in the packed matrix. If `count` is no multiple of sixteen,
// the rows left over must be the matrix's last ones. They are copied as plain blocks. If the type has no packed form,
// all rows are copied. Runs on the calling thread. Several threads may pack different rows at once.
void pack_rows(BlockType type, const std::uint8_t* rows, std::int64_t count, std::int64_t cols, std::uint8_t* packed);

// Packs fewer than sixteen rows in the form of sixteen. The bytes of the missing rows are zeros. Precondition: the type
// has a packed form.
void pack_last_rows(BlockType type, const std::uint8_t* rows, std::int64_t count, std::int64_t cols,
                    std::uint8_t* packed);

}  // namespace tessera
