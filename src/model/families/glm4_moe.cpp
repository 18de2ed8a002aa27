#include "tessera/model/families/glm4_moe.h"

#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/layers/norm.h"
#include "tessera/model/moe_fields.h"
#include "tessera/model/sliding_windows.h"

namespace tessera {
namespace {

using ir::ValueId;

// GLM-4.5, arXiv 2508.06471: attention that rotates half of each head, and, after a few dense layers, experts chosen
// by DeepSeek-V3's router beside an expert that every token goes through.
ValueId build_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string attn = p + "self_attn.";
    const std::string mlp = p + "mlp.";

    h.add(self_attention(b, shared, layer, h.norm(p + "input_layernorm.weight"), qkv_blocks(config, attn), attn));
    const ValueId x = h.norm(p + "post_attention_layernorm.weight");
    h.add(config.moe->layers[static_cast<std::size_t>(layer)]
              ? moe_mlp(b, config, x, tokens.slots[0], separate_experts(mlp))
              : gated_mlp(b, config, x, gate_up_blocks(config, mlp), mlp));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

Status read_config(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);  // the projection after it has none
  if (TRY(fields.optional_bool("use_qk_norm")).value_or(false)) config.qk_norm = QkNorm::kHead;
  TRY(read_experts(fields, {.experts = "n_routed_experts", .experts_alias = "num_local_experts"}, *config.moe));
  config.moe->shared_intermediate_size = config.moe->intermediate_size;
  TRY(read_grouped_routing(fields, *config.moe));
  TRY(read_first_dense(fields, config));
  return set_full_attention(fields, config);
}

}  // namespace

ModelFamily glm4_moe_family() {
  return {.architecture = "Glm4MoeForCausalLM",
          .defaults = {.rms_norm_eps = 1e-5,
                       .rope = {.partial_rotary_factor = 0.5},
                       .moe = MoeConfig{.num_experts = 128,
                                        .experts_per_token = 8,
                                        .intermediate_size = 1408,
                                        .scoring = RouterScoring::kSigmoid,
                                        .normalise = true,
                                        .correction_bias = true}},
          .partial_rotary = true,
          .read_config = read_config,
          .build_body = build_body};
}

}  // namespace tessera
