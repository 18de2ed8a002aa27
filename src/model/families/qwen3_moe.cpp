#include "tessera/model/families/qwen3_moe.h"

#include "tessera/model/config/moe_fields.h"
#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/llama_body.h"
#include "tessera/model/layers/moe.h"

namespace tessera {
namespace {

using ir::ValueId;

// Hugging Face's default (configuration_qwen3_moe.py).
constexpr std::int64_t kQwen3MoeDefaultSlidingWindow = 4096;

Status read_qwen3_moe_config(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  TRY(read_experts(fields, {.experts = "num_experts", .experts_alias = "num_local_experts"}, *config.moe));
  TRY(read_sparse_step(fields, config));
  config.moe->normalise = TRY(fields.optional_bool("norm_topk_prob")).value_or(false);
  std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kQwen3MoeDefaultSlidingWindow));
  if (!TRY(fields.optional_bool("use_sliding_window")).value_or(false)) window.reset();
  return set_sliding_windows(fields, window, /*first=*/0, config);
}

ValueId experts_or_mlp(LayerBuilder& b, const ModelConfig& config, const FeedForwardInput& in) {
  const std::string mlp = in.prefix + "mlp.";
  return moe_or_mlp(b, config, in.layer, in.x, in.slots, separate_experts(mlp), mlp);
}

}  // namespace

// Builds the body (Yang et al., arXiv 2505.09388): Qwen3's layers, but most or all of them have experts instead of an
// MLP.
ValueId build_qwen3_moe_body(LayerBuilder& b, const ModelConfig& config) {
  return build_llama_body(b, config, qkv_blocks,
                          [&](const FeedForwardInput& in) { return experts_or_mlp(b, config, in); });
}

void add_qwen3_moe_layer(LayerBuilder& b, const AttentionInputs& shared, std::int64_t layer, ResidualStream& h,
                         const std::string& prefix) {
  add_llama_layer(b, shared, layer, h, prefix, qkv_blocks,
                  [&](const FeedForwardInput& in) { return experts_or_mlp(b, shared.config, in); });
}

ModelFamily qwen3_moe_family() {
  return {.architecture = "Qwen3MoeForCausalLM",
          .defaults = {.qk_norm = QkNorm::kHead,
                       .moe = MoeConfig{.num_experts = 128, .experts_per_token = 8, .intermediate_size = 768}},
          .read_config = read_qwen3_moe_config,
          .build_body = build_qwen3_moe_body};
}

}  // namespace tessera
