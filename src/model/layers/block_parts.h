// Makes the weights of a linear whose matrix is stored as a GGUF file's blocks. Operators take either the blocks
// themselves, or two weights: the integers of the blocks, called codes, and the scales.
#pragma once

#include <span>
#include <string>

#include "tessera/model/layers/linear_parts.h"

namespace tessera {

// Joins parts with the same block type into one weight, u8[all parts' rows, bytes of a row]. Preconditions: No slice
// begins or ends within a block. Every part except the last has a multiple of sixteen rows (end_of_run()).
QuantisedWeights block_weights(const std::string& name, std::span<const LinearPart> parts);

// Joins parts with the same block type into two weights: codes u8[all parts' rows, bytes of a row] and scales f16[all
// parts' rows, groups of a row]. If each group has a scale and an offset, the second weight has twice as many columns.
// Preconditions: The formats have WeightFormat::codes set. No slice begins or ends within a group (values that share a
// scale).
QuantisedWeights block_code_weights(const std::string& name, std::span<const LinearPart> parts);

}  // namespace tessera
