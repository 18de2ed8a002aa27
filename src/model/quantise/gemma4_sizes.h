// Converts the sizes that differ between the layers of a Gemma 4 model to GGUF metadata. gguf/gguf_gemma4.h does the
// inverse.
#pragma once

#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_metadata.h"

namespace tessera {

// Writes the sizes of heads and MLPs, which layers have a window, and how many layers share keys and values. A number
// that is not the same in all layers becomes a list with one element for each layer. Precondition: config.gemma4 is
// set.
void write_gemma4_sizes(const ModelConfig& config, GgufMetadata& metadata);

// Returns the factors by which GGUF files say which pairs of a head are rotated in layers with full attention
// (rope_freqs.weight): 1 for a rotated pair, and 1e30 for another pair. Precondition: config.gemma4 is set, and
// config.rope has the type proportional.
std::vector<float> gemma4_rope_factors(const ModelConfig& config);

}  // namespace tessera
