#include "tessera/model/families/qwen3_moe.h"

#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/layers/norm.h"
#include "tessera/model/moe_fields.h"
#include "tessera/model/sliding_windows.h"

namespace tessera {
namespace {

using ir::ValueId;

// Hugging Face's default (configuration_qwen3_moe.py).
constexpr std::int64_t kDefaultSlidingWindow = 4096;

Status read_config(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  TRY(read_experts(fields, {.experts = "num_experts", .experts_alias = "num_local_experts"}, *config.moe));
  TRY(read_sparse_step(fields, config));
  config.moe->normalise = TRY(fields.optional_bool("norm_topk_prob")).value_or(false);
  std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kDefaultSlidingWindow));
  if (!TRY(fields.optional_bool("use_sliding_window")).value_or(false)) window.reset();
  return set_sliding_windows(fields, window, /*first=*/0, config);
}

}  // namespace

// Yang et al., arXiv 2505.09388: Qwen3's layers, with experts in place of the MLP in most or all of them.
ValueId build_qwen3_moe_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const AttentionInputs shared{.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string attn = p + "self_attn.";
    const std::string mlp = p + "mlp.";

    h.add(self_attention(b, shared, layer, h.norm(p + "input_layernorm.weight"), qkv_blocks(config, attn), attn));
    const ValueId x = h.norm(p + "post_attention_layernorm.weight");
    h.add(moe_or_mlp(b, config, layer, x, tokens.slots[0], separate_experts(mlp), mlp));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

ModelFamily qwen3_moe_family() {
  return {.architecture = "Qwen3MoeForCausalLM",
          .defaults = {.qk_norm = QkNorm::kHead,
                       .moe = MoeConfig{.num_experts = 128, .experts_per_token = 8, .intermediate_size = 768}},
          .read_config = read_config,
          .build_body = build_qwen3_moe_body};
}

}  // namespace tessera
