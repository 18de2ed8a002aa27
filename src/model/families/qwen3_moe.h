// Qwen3's mixtures of experts (Qwen3MoeForCausalLM), and what families of their form share.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily qwen3_moe_family();

// Llama's layers, with experts in place of the MLP where config.moe says so; config.moe is set. input_ids, positions …
// → hidden [T, hidden].
ir::ValueId build_qwen3_moe_body(LayerBuilder& b, const ModelConfig& config);

}  // namespace tessera
