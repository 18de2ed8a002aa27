// Rounds numbers to GGUF's types: plain floats, and blocks of small integers that share scales.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// The greatest magnitude that every type can hold: the scales of blocks are float16.
inline constexpr float kMostQuantised = 65504.0F;

// Returns whether quantise() knows the type.
bool can_quantise(BlockType type);

// Writes `count` neighbouring blocks of one type, which has no alignment, for the count · (elements of a block) numbers
// x. A plain type has blocks of one number.
//
// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and MXFP4 take their scale from the block's extremes, bit by bit as gguf-py. The other
// types search: of some twenty scales around the one of the extremes, each gives integers, and these give the scale
// (and the minimum) with the least weighted squared error; the best is kept. Greater numbers weigh more. The result is
// the same on every CPU. Precondition: can_quantise(type); the numbers are finite, and but for F32 and BF16 at most
// kMostQuantised in magnitude. Runs on the calling thread.
void quantise(BlockType type, const float* x, std::int64_t count, std::uint8_t* blocks);

}  // namespace tessera
