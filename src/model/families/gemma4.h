// Defines the families of Gemma 4. Its dense models (E2B, E4B) have per-layer embeddings, and their last layers reuse
// the KV caches of earlier layers. Its other models are mixtures of experts (26B-A4B).
#pragma once

#include <cstdint>

#include "tessera/model/family.h"

namespace tessera {

ModelFamily gemma4_family();         // Gemma4ForCausalLM
ModelFamily gemma4_nested_family();  // the text part of Gemma4ForConditionalGeneration

// Returns a copy of a Gemma 4 config with the sizes of one layer: head_dim, num_key_value_heads and intermediate_size.
ModelConfig gemma4_layer_config(const ModelConfig& config, std::int64_t layer);
// Returns whether a layer of Gemma 4 uses the KV cache of an earlier layer.
bool gemma4_layer_shares_cache(const ModelConfig& config, std::int64_t layer);

}  // namespace tessera
