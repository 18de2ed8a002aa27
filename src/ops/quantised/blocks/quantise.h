// Rounds numbers to GGUF's types: plain floats, and blocks of small integers that share scales.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// The greatest magnitude that every type can hold. It is float16's greatest number, because the scales of blocks are
// float16.
inline constexpr float kMostQuantised = 65504.0F;

// Returns whether quantise() supports the type.
bool can_quantise(BlockType type);
// Returns whether quantise() reads `importance` for the type. It does for Q4_0 to Q5_1, the K types, and IQ4.
bool uses_importance(BlockType type);

// Rounds numbers to `count` neighbouring blocks, which need no alignment. `x` has count · (elements of a block)
// numbers. A plain type has blocks of one number.
//
// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and MXFP4 take their scale from the block's extremes, with the same bits as gguf-py. The
// other types search: they try about twenty scales around the one that the extremes give. Each tried scale gives
// integers. For these integers the scale (and the minimum) with the least weighted squared error is computed. Greater
// numbers weigh more. The best result of all is kept, and is the same on every CPU.
//
// If `importance` is not null, it has an importance for each number of x: the mean square of the input by which the
// number is multiplied, in any unit. With importances, Q4_0, Q4_1, Q5_0 and Q5_1 search too, and the weight of x[i] in
// every search is importance[i] · sqrt(m + x[i]²), where m is the mean square of x in the block. Types for which
// uses_importance() is false ignore `importance`.
//
// Preconditions: can_quantise(type). The numbers are finite. Except for F32 and BF16, their magnitudes are at most
// kMostQuantised. Importances are positive, and the sum of a block's importances is at most 1e12 times the least
// importance. Runs on the calling thread.
void quantise(BlockType type, const float* x, std::int64_t count, std::uint8_t* blocks,
              const float* importance = nullptr);

}  // namespace tessera
