// Attention layers: everything between the norm before them and the residual stream after them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/cache.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Returns cos and sin of the tokens' positions, f32[T, rotated dimensions of a head]: one table for all layers.
ir::ValueId rope_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs);
// Like rope_table() above, for layers that rotate by `rope` and have heads of `head_dim`. `name` is the name of the
// table's frequencies in the graph.
ir::ValueId rope_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, const RopeConfig& rope,
                       std::int64_t head_dim, const std::string& name);

// Returns the rows of a joint projection, q above k above v, from one tensor each ("<prefix>q_proj" …).
std::vector<LinearBlock> qkv_blocks(const ModelConfig& config, const std::string& prefix);
// Like qkv_blocks(), from one tensor of the checkpoint, "<prefix>qkv_proj".
std::vector<LinearBlock> fused_qkv_blocks(const ModelConfig& config, const std::string& prefix);

// Inputs that the layers of a model share.
struct AttentionInputs {
  const ModelConfig& config;
  const TokenInputs& tokens;
  ir::ValueId rope;  // rope_table()
};

// Returns softmax(scale · q kᵀ) v over the layer's cache: q [T, heads · head_dim] → the same shape. The scale is the
// config's, or 1/√head_dim; the scores' soft cap is the config's too. `sinks`: f32[heads], see
// ops/attention/attention.h.
ir::ValueId attend(LayerBuilder& b, const ModelConfig& config, const KvCache& cache, ir::ValueId q,
                   std::optional<ir::ValueId> sinks = std::nullopt);

// Returns attention(rope(qkv)): qkv [T, (heads + 2 · kv_heads) · head_dim] → [T, heads · head_dim]. Keys and values go
// to the layer's cache. With QkNorm::kHead each head of q and k is first normalised by "<prefix>q_norm" and "k_norm".
// With attention_sinks, "<prefix>sinks" holds a sink for each head.
ir::ValueId rope_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId qkv,
                           const std::string& prefix);

// Like rope_attention(), for layers whose "q_proj" holds, for each head, the rows of its queries and then those of a
// gate. Takes x [T, hidden] and returns attention(rope(qkv(x))) · sigmoid(gate(x)).
ir::ValueId gated_rope_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId x,
                                 const std::string& prefix);

// Returns the projection after attention, "<prefix>o_proj": [T, heads · head_dim] → [T, hidden].
ir::ValueId output_projection(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const std::string& prefix);

// Returns Llama's attention layer, o(attention(rope(qkv(x)))): x [T, hidden] → [T, hidden]. `qkv` is the result of
// qkv_blocks() or fused_qkv_blocks().
ir::ValueId self_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId x,
                           const std::vector<LinearBlock>& qkv, const std::string& prefix);

}  // namespace tessera
