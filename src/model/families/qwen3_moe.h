// Defines the family of Qwen3's mixtures of experts (Qwen3MoeForCausalLM), and code that similar families share.
#pragma once

#include "tessera/model/family.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/norm.h"

namespace tessera {

ModelFamily qwen3_moe_family();

// Builds Llama's layers, with experts instead of the MLP in the layers that config.moe lists. The graph's inputs are
// input_ids, positions and so on. Returns the last hidden states [T, hidden size]. Precondition: config.moe is set.
ir::ValueId build_qwen3_moe_body(LayerBuilder& b, const ModelConfig& config);

// Adds one layer of the body that build_qwen3_moe_body() builds. The names of the layer's tensors begin with `prefix`.
void add_qwen3_moe_layer(LayerBuilder& b, const AttentionInputs& shared, std::int64_t layer, ResidualStream& h,
                         const std::string& prefix);

}  // namespace tessera
