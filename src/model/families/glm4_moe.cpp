// Implements GLM-4.5 (arXiv 2508.06471). It has Qwen3-MoE's layers, but attention rotates only half of each head. The
// first layers are dense. In all other layers DeepSeek-V3's router chooses experts, and a shared expert processes every
// token.
#include "tessera/model/families/glm4_moe.h"

#include "tessera/model/config/moe_fields.h"
#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/families/qwen3_moe.h"
#include "tessera/model/layers/cache.h"
#include "tessera/model/layers/draft.h"

namespace tessera {
namespace {

Status read_glm4_moe_config(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);  // the output projection has no bias
  if (TRY(fields.optional_bool("use_qk_norm")).value_or(false)) config.qk_norm = QkNorm::kHead;
  TRY(read_experts(fields, {.experts = "n_routed_experts", .experts_alias = "num_local_experts"}, *config.moe));
  config.moe->shared_intermediate_size = config.moe->intermediate_size;
  TRY(read_grouped_routing(fields, *config.moe));
  TRY(read_first_dense(fields, /*first_dense=*/1, config));
  return set_full_attention(fields, config);
}

ir::ValueId build_glm4_moe_draft(LayerBuilder& b, const ModelConfig& config) {
  return next_token_layer(b, config, cache_groups(config), nextn_tensors(b, config),
                          [&](ResidualStream& h, const AttentionInputs& shared, std::int64_t layer,
                              const std::string& prefix) { add_qwen3_moe_layer(b, shared, layer, h, prefix); });
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
          .read_config = read_glm4_moe_config,
          .build_body = build_qwen3_moe_body,
          .build_draft = build_glm4_moe_draft};
}

}  // namespace tessera
