// Builds multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1). The keys and values of all heads are
// computed from one latent vector for each token. Only the latent vector and one rotated key, shared by all heads, are
// cached.
//
// This is the absorbed form of section 2.1.2. The matrices that would compute keys and values from latent vectors are
// applied to the queries and to the output instead. Each head's query is projected into the latent space, attention
// runs on latent vectors, and the output is projected to the head's value size.
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

// Returns one cache group that contains all layers. Its pages store latent vectors, which are the same on every rank.
std::vector<ir::CacheGroup> latent_groups(const ModelConfig& config);

// Returns the scale of q·k: 1/√(qk_nope_head_dim + qk_rope_head_dim). With YaRN it is multiplied by mscale², where
// mscale = 0.1 · mscale_all_dim · log(factor) + 1, as in DeepSeek's own code (modeling_deepseek.py). transformers
// multiplies by mscale² only for DeepSeek-V3 and later models.
double latent_attention_scale(const ModelConfig& config);

// Takes x [T, hidden] and returns the heads' outputs [T, local heads · v_head_dim]. Latent vectors and rotated keys are
// stored in the layer's cache. The tensors of keys and values are "<prefix>kv_a_proj_with_mqa", "kv_a_layernorm" and
// "kv_b_proj". The tensors of queries are "<prefix>q_a_proj", "q_a_layernorm" and "q_b_proj" if queries have a latent
// vector, otherwise "<prefix>q_proj". config.qkv_bias says whether the projections of x have biases. Precondition:
// config.mla is set.
ir::ValueId latent_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId x,
                             const std::string& prefix);

}  // namespace tessera
