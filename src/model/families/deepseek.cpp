#include "tessera/model/families/deepseek.h"

#include <string>

#include "tessera/model/config/mla_fields.h"
#include "tessera/model/config/moe_fields.h"
#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/draft.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/mla.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/layers/norm.h"

namespace tessera {
namespace {

using ir::ValueId;

// Hugging Face's defaults for absent fields.
constexpr std::int64_t kDeepseekQueryRank = 1536;
constexpr std::int64_t kHeadDim = 64;  // read_mla() replaces this value by the size of the rotated part

Status expect_name(const Fields& fields, const char* key, const std::string& accepted) {
  const std::optional<std::string> name = TRY(fields.optional_string(key));
  return !name || *name == accepted ? ok_status() : fields.unsupported(key, accepted);
}

// Reads how DeepSeek-V2 chooses experts. If `topk_method` is "group_limited_greedy", a token's experts must belong to
// the best groups of experts. If it is "greedy", they may belong to any group.
Status read_v2_method(const Fields& fields, MoeConfig& moe) {
  TRY(expect_name(fields, "scoring_func", "softmax"));
  const std::string method = TRY(fields.optional_string("topk_method")).value_or("greedy");
  if (method == "greedy") {
    moe.groups = moe.groups_per_token = 1;
  } else if (method != "group_limited_greedy") {
    return fields.unsupported("topk_method", "greedy, group_limited_greedy");
  }
  // Refuses a norm_topk_prob of true, because implementations disagree about it. With true, DeepSeek's own code omits
  // the scale, but transformers ignores the field.
  return moe.normalise ? fields.unsupported("norm_topk_prob", "false") : ok_status();
}

Status read_v2(const Fields& fields, ModelConfig& config) {
  TRY(read_mla(fields, kDeepseekQueryRank, config));
  if (TRY(fields.optional_bool("mlp_bias")).value_or(false)) return fields.unsupported("mlp_bias", "false");
  TRY(read_deepseek_experts(fields, /*first_dense=*/0, config));
  if (config.moe) TRY(read_v2_method(fields, *config.moe));
  return set_full_attention(fields, config);
}

Status read_v3(const Fields& fields, ModelConfig& config) {
  TRY(read_mla(fields, kDeepseekQueryRank, config));
  TRY(expect_name(fields, "scoring_func", "sigmoid"));
  TRY(expect_name(fields, "topk_method", "noaux_tc"));
  TRY(read_deepseek_experts(fields, /*first_dense=*/3, config));
  return set_full_attention(fields, config);
}

// Adds a layer:
//   h += o(latent_attention(norm(h)));  h += mlp(norm(h)) or experts(norm(h))
void add_layer(LayerBuilder& b, const AttentionInputs& shared, std::int64_t layer, ResidualStream& h,
               const std::string& prefix) {
  const std::string attn = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const ValueId heads = latent_attention(b, shared, layer, h.norm(prefix + "input_layernorm.weight"), attn);
  h.add(output_projection(b, shared.config, heads, attn));
  const ValueId x = h.norm(prefix + "post_attention_layernorm.weight");
  h.add(moe_or_mlp(b, shared.config, layer, x, shared.tokens.padding_slots, separate_experts(mlp), mlp));
}

}  // namespace

Status read_deepseek_experts(const Fields& fields, std::int64_t first_dense, ModelConfig& config) {
  if (fields.has("n_routed_experts") && fields.find("n_routed_experts") == nullptr) {
    config.moe.reset();
    return ok_status();
  }
  const std::int64_t shared_experts = config.moe->shared_intermediate_size / config.moe->intermediate_size;
  TRY(read_experts(fields, {.experts = "n_routed_experts"}, *config.moe));
  config.moe->shared_intermediate_size =
      fields.has("n_shared_experts") ? 0 : shared_experts * config.moe->intermediate_size;
  TRY(read_grouped_routing(fields, *config.moe));
  if (TRY(fields.optional_int("moe_layer_freq", 1, ModelConfig::kMaxLayers)).value_or(1) != 1)
    return fields.unsupported("moe_layer_freq", "1");
  return read_first_dense(fields, first_dense, config);
}

// Builds the body of DeepSeek-V2 and V3 (DeepSeek-AI, arXiv 2405.04434 and 2412.19437).
ValueId build_deepseek_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config, latent_groups(config));
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    add_layer(b, shared, layer, h, b.begin_layer(layer));
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

ValueId build_deepseek_draft(LayerBuilder& b, const ModelConfig& config) {
  return next_token_layer(b, config, latent_groups(config), nextn_tensors(b, config),
                          [&](ResidualStream& h, const AttentionInputs& shared, std::int64_t layer,
                              const std::string& prefix) { add_layer(b, shared, layer, h, prefix); });
}

ModelFamily deepseek_v2_family() {
  return {.architecture = "DeepseekV2ForCausalLM",
          .defaults = {.head_dim = kHeadDim,
                       .moe = MoeConfig{.num_experts = 64,
                                        .experts_per_token = 6,
                                        .intermediate_size = 1407,
                                        .shared_intermediate_size = 2 * 1407}},
          .read_config = read_v2,
          .build_body = build_deepseek_body};
}

ModelFamily deepseek_v3_family() {
  return {.architecture = "DeepseekV3ForCausalLM",
          .defaults = {.head_dim = kHeadDim,
                       .moe = MoeConfig{.num_experts = 256,
                                        .experts_per_token = 8,
                                        .intermediate_size = 2048,
                                        .shared_intermediate_size = 2048,
                                        .scoring = RouterScoring::kSigmoid,
                                        .normalise = true,
                                        .correction_bias = true,
                                        .groups = 8,
                                        .groups_per_token = 4,
                                        .scale = 2.5}},
          .read_config = read_v3,
          .build_body = build_deepseek_body,
          .build_draft = build_deepseek_draft};
}

}  // namespace tessera
