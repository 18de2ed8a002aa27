// Defines the families of DeepSeek-V2 and DeepSeek-V3, and code that similar families share. DeepSeek-R1 and Kimi K2
// have DeepSeek-V3's architecture.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily deepseek_v2_family();
ModelFamily deepseek_v3_family();

// Builds layers of latent attention, each with experts or an MLP. The graph's inputs are input_ids, positions and so
// on. Returns the last hidden states [T, hidden size]. Precondition: config.mla is set.
ir::ValueId build_deepseek_body(LayerBuilder& b, const ModelConfig& config);
// Builds the next-token layer that follows the layers of build_deepseek_body() (ModelFamily::build_draft).
ir::ValueId build_deepseek_draft(LayerBuilder& b, const ModelConfig& config);

// Reads the fields of DeepSeek-V3's experts into config.moe, which already has the architecture's defaults. If no field
// says which layers have experts, all layers except the first `first_dense` layers have experts. A null
// n_routed_experts means that no layer has experts.
Status read_deepseek_experts(const Fields& fields, std::int64_t first_dense, ModelConfig& config);

}  // namespace tessera
