// The matrix of a linear whose parts are stored as a GGUF file's blocks: the blocks themselves, or their integers and
// scales apart.
#pragma once

#include <span>
#include <string>

#include "tessera/model/layers/linear_parts.h"

namespace tessera {

// Joins parts of one type of blocks to one weight, u8[all parts' rows, bytes of a row]. Preconditions: slices divide no
// block, and all parts but the last have a multiple of sixteen rows (end_of_run()).
QuantisedWeights block_weights(const std::string& name, std::span<const LinearPart> parts);

// Joins parts of one type of blocks, whose formats have `codes`, to two weights: codes u8[all parts' rows, bytes of a
// row] and scales f16[all parts' rows, groups of a row], or twice as many if the format has pairs. Precondition: slices
// divide no block.
QuantisedWeights block_code_weights(const std::string& name, std::span<const LinearPart> parts);

}  // namespace tessera
