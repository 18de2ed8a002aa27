// DeepSeek-V2 and DeepSeek-V3, and the parts that similar families share. DeepSeek-R1 and Kimi K2 have DeepSeek-V3's
// architecture.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily deepseek_v2_family();
ModelFamily deepseek_v3_family();

// Builds layers of latent attention, each with experts or an MLP. Precondition: config.mla is set. input_ids, positions
// … → hidden [T, hidden].
ir::ValueId build_deepseek_body(LayerBuilder& b, const ModelConfig& config);
// Builds the next-token layer behind such layers (ModelFamily::build_draft).
ir::ValueId build_deepseek_draft(LayerBuilder& b, const ModelConfig& config);

// Reads experts of DeepSeek-V3's kind into config.moe, which holds the architecture's defaults. If no field says which
// layers have experts, the layers from `first_dense` on have them. A null n_routed_experts means that no layer has any.
Status read_deepseek_experts(const Fields& fields, std::int64_t first_dense, ModelConfig& config);

}  // namespace tessera
