// The matrix of a linear whose parts are stored as a GGUF file's blocks.
#pragma once

#include <span>
#include <string>

#include "tessera/model/layers/linear_parts.h"

namespace tessera {

// Joins parts of one type of blocks to one weight, u8[all parts' rows, bytes of a row]. Preconditions: slices divide no
// block, and all parts but the last have a multiple of sixteen rows (end_of_run()).
QuantisedWeights block_weights(const std::string& name, std::span<const LinearPart> parts);

}  // namespace tessera
