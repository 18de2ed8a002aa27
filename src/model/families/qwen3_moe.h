// Qwen3's mixtures of experts (Qwen3MoeForCausalLM), and the parts that similar families share.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily qwen3_moe_family();

// Builds Llama's layers, with experts instead of the MLP in the layers that config.moe lists. Precondition: config.moe
// is set. input_ids, positions … → hidden [T, hidden].
ir::ValueId build_qwen3_moe_body(LayerBuilder& b, const ModelConfig& config);

}  // namespace tessera
