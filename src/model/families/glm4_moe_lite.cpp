// Implements GLM-4.7-Flash, which has DeepSeek-V3's layers with other sizes (transformers' modular_glm4_moe_lite.py).
#include "tessera/model/families/glm4_moe_lite.h"

#include "tessera/model/config/mla_fields.h"
#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/families/deepseek.h"

namespace tessera {
namespace {

constexpr std::int64_t kGlm4MoeLiteQueryRank = 768;  // rank of the queries' latent vector if `q_lora_rank` is absent

Status read_glm4_moe_lite_config(const Fields& fields, ModelConfig& config) {
  TRY(read_mla(fields, kGlm4MoeLiteQueryRank, config));
  TRY(read_deepseek_experts(fields, /*first_dense=*/1, config));
  return set_full_attention(fields, config);
}

}  // namespace

ModelFamily glm4_moe_lite_family() {
  return {.architecture = "Glm4MoeLiteForCausalLM",
          .defaults = {.head_dim = 64,
                       .rms_norm_eps = 1e-5,
                       .moe = MoeConfig{.num_experts = 64,
                                        .experts_per_token = 4,
                                        .intermediate_size = 1536,
                                        .shared_intermediate_size = 1536,
                                        .scoring = RouterScoring::kSigmoid,
                                        .normalise = true,
                                        .correction_bias = true,
                                        .scale = 1.8}},
          .read_config = read_glm4_moe_lite_config,
          .build_body = build_deepseek_body,
          .build_draft = build_deepseek_draft};
}

}  // namespace tessera
