// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values of all heads are computed
// from one latent for each token. Only the latent and one rotated key for all heads are cached.
//
// This is the absorbed form (section 2.1.2 there): the matrices that would make keys and values from latents are
// absorbed. Each head's query is projected into the latents' space, attention runs over latents, and its output is
// projected to the head's values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/model/config/config.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Returns one group of all layers. Its pages hold latents, which are the same on every rank.
std::vector<ir::CacheGroup> latent_groups(const ModelConfig& config);

// Returns the scale of q·k: 1/√(qk_nope_head_dim + qk_rope_head_dim). With YaRN it is multiplied by mscale² for mscale
// = 0.1 · mscale_all_dim · log(factor) + 1 (DeepSeek's own code, modeling_deepseek.py; transformers does so from
// DeepSeek-V3 on).
double latent_attention_scale(const ModelConfig& config);

// Takes x [T, hidden] and returns the heads' outputs [T, local heads · v_head_dim]. Latents and rotated keys go to the
// layer's cache. Tensors: "<prefix>q_a_proj", "q_a_layernorm" and "q_b_proj", or "q_proj"; "kv_a_proj_with_mqa",
// "kv_a_layernorm", "kv_b_proj". config.qkv_bias says whether the projections from x have biases. Precondition:
// config.mla is set.
ir::ValueId latent_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId x,
                             const std::string& prefix);

}  // namespace tessera
