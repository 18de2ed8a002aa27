// DeepSeek-V2 and DeepSeek-V3 (which DeepSeek-R1 and Kimi K2 are too), and what families of their form share.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily deepseek_v2_family();
ModelFamily deepseek_v3_family();

// Latent attention, and experts or an MLP in each layer; config.mla is set. input_ids, positions … → hidden [T,
// hidden].
ir::ValueId build_deepseek_body(LayerBuilder& b, const ModelConfig& config);

// The experts of DeepSeek-V3's kind: reads over what config.moe has, which are the architecture's defaults. Layers from
// `first_dense` on have experts where no field says which do. A null n_routed_experts means that no layer has any.
Status read_deepseek_experts(const Fields& fields, std::int64_t first_dense, ModelConfig& config);

}  // namespace tessera
