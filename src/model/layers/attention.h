// Builds attention layers. An attention layer takes the normed hidden states and returns the result that is added to
// the residual stream.
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

// Returns the cosines and sines for the tokens' positions, f32[T, rotated dimensions of a head]. All layers with the
// config's rotation `rope` use this table.
ir::ValueId rope_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs);
// Like rope_table() above, for layers with the rotation `rope` and heads of `head_dim`. `name` is the name of the
// table's frequencies in the graph.
ir::ValueId rope_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, const RopeConfig& rope,
                       std::int64_t head_dim, const std::string& name);

// Returns the table by which queries are rotated, if it differs from rope_table(): queries grow with the position
// (RopeConfig::query_growth).
std::optional<ir::ValueId> query_rope_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs);

// Returns the blocks of a joint projection: q, then k, then v. Each block has its own tensor ("<prefix>q_proj" …).
std::vector<LinearBlock> qkv_blocks(const ModelConfig& config, const std::string& prefix);
// Like qkv_blocks(), if the checkpoint has a single tensor "<prefix>qkv_proj".
std::vector<LinearBlock> fused_qkv_blocks(const ModelConfig& config, const std::string& prefix);

// Inputs that the layers of a model share.
struct AttentionInputs {
  const ModelConfig& config;
  const TokenInputs& tokens;
  ir::ValueId rope;                                      // result of rope_table()
  std::optional<ir::ValueId> query_rope = std::nullopt;  // result of query_rope_table()
};

// Returns softmax(scale · q kᵀ) v over the layer's cache. q and the result are [T, heads · head_dim]. The config gives
// the scale, 1/√head_dim by default, and may give a soft cap of the scores. `sinks` is f32[heads]
// (ops/attention/attention.h).
ir::ValueId attend(LayerBuilder& b, const ModelConfig& config, const KvCache& cache, ir::ValueId q,
                   std::optional<ir::ValueId> sinks = std::nullopt);

// Returns attention(rope(qkv)): qkv [T, (heads + 2 · kv_heads) · head_dim] → [T, heads · head_dim]. Keys and values are
// stored in the layer's cache. With QkNorm::kHead each head of q and k is first normed with the weights
// "<prefix>q_norm" and "<prefix>k_norm". Precondition: no such norms if in.query_rope is set. With
// config.attention_sinks the softmax includes one sink for each head, from the weight "<prefix>sinks".
ir::ValueId rope_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId qkv,
                           const std::string& prefix);

// Like rope_attention(), for layers with a gate. For each head, "q_proj" contains the rows of the queries, then the
// rows of the gate. Takes x [T, hidden] and returns attention(rope(qkv(x))) · sigmoid(gate(x)).
ir::ValueId gated_rope_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId x,
                                 const std::string& prefix);

// Returns the projection after attention, "<prefix>o_proj": [T, heads · head_dim] → [T, hidden].
ir::ValueId output_projection(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const std::string& prefix);

// Returns Llama's attention layer, o(attention(rope(qkv(x)))): x [T, hidden] → [T, hidden]. `qkv` is the result of
// qkv_blocks() or fused_qkv_blocks().
ir::ValueId self_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId x,
                           const std::vector<LinearBlock>& qkv, const std::string& prefix);

}  // namespace tessera
