// Splits GGUF's blocks into integers, scales and offsets, for kernels that read them separately (quantised_matrix.h):
//
//   number = code · scale + offset
//
// In types with blocks of 256 numbers, the scale and the offset of a group are each a product of two stored numbers.
// The matrix stores the products rounded to float16, so a number may differ from the result of dequantise() by up to
// 2^-11 · (|code · scale| + |offset|). The numbers of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and NVFP4 are exact.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/block_types.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// Returns the format of the matrix into which blocks of this type are split: int4 or int8, with groups of 16 or 32
// columns of a row. Returns null for types with code books, and for types whose scales float16 cannot hold.
const QuantisedFormat* block_codes_format(BlockType type);

// The addresses to which split_blocks() writes the parts of neighbouring blocks.
struct BlockCodes {
  // The codes, one for each number of the blocks. A code of int4 is 0 … 15. A code of int8 is 0 … 127 if the format has
  // offsets. If not, it has the bits of a signed number, −128 … 127.
  std::uint8_t* codes;
  float* scales;   // one for each group; if int4 has no offsets, the code 8 stands for 0
  float* offsets;  // one for each group if the format has offsets (Scales::kPairs); otherwise not written
};

// Splits `count` neighbouring blocks, which need no alignment. Precondition: block_codes_format(type) is not null. Runs
// on the calling thread.
void split_blocks(BlockType type, const std::uint8_t* blocks, std::int64_t count, const BlockCodes& to);

}  // namespace tessera
