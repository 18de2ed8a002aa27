// Splits GGUF's blocks into integers, scales and offsets, for kernels that take these apart (quantised_matrix.h):
//
//   number = code · scale + offset
//
// A block's scale of a group is often a product. Where it is, it is rounded to float16, and the numbers differ from
// dequantise() by up to 2^-11 of themselves and of the offset; Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and NVFP4 are
// exact.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/block_types.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// Returns the format of a matrix of such integers: int4 or int8, with groups of 16 or 32 columns of a row. Null for
// types without it: grids, and scales that float16 cannot hold.
const QuantisedFormat* block_codes_format(BlockType type);

// The parts of neighbouring blocks.
struct BlockCodes {
  std::uint8_t* codes;  // one for each number: 0 … 15 of int4, the bits of −128 … 127 of int8
  float* scales;        // one for each group; the zero of int4 without pairs is 8
  float* offsets;       // one for each group if the format has pairs; otherwise not written
};

// Splits `count` neighbouring blocks, which need no alignment. Precondition: block_codes_format(type) is not null. Runs
// on the calling thread.
void split_blocks(BlockType type, const std::uint8_t* blocks, std::int64_t count, const BlockCodes& to);

}  // namespace tessera
