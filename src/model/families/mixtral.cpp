#include "tessera/model/families/mixtral.h"

#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/layers/norm.h"
#include "tessera/model/moe_fields.h"
#include "tessera/model/sliding_windows.h"

namespace tessera {
namespace {

using ir::ValueId;

MoeTensors experts_of(const std::string& layer) {
  const std::string prefix = layer + "block_sparse_moe.";
  return {.router = {.weight = prefix + "gate"},
          .experts = {.prefix = prefix + "experts.", .gate = "w1", .up = "w3", .down = "w2"}};
}

// Jiang et al., arXiv 2401.04088: Mistral's layers, with experts in place of every MLP.
ValueId build_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string attn = p + "self_attn.";
    h.add(self_attention(b, shared, layer, h.norm(p + "input_layernorm.weight"), qkv_blocks(config, attn), attn));
    h.add(moe_mlp(b, config, h.norm(p + "post_attention_layernorm.weight"), tokens.slots[0], experts_of(p)));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

Status read_config(const Fields& fields, ModelConfig& config) {
  TRY(read_experts(fields, {.experts = "num_local_experts", .intermediate = "intermediate_size"}, *config.moe));
  config.moe->layers.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
  return set_sliding_windows(fields, TRY(read_sliding_window(fields, std::nullopt)), /*first=*/0, config);
}

}  // namespace

ModelFamily mixtral_family() {
  return {
      .architecture = "MixtralForCausalLM",
      .defaults = {.rms_norm_eps = 1e-5, .moe = MoeConfig{.num_experts = 8, .experts_per_token = 2, .normalise = true}},
      .read_config = read_config,
      .build_body = build_body};
}

}  // namespace tessera
