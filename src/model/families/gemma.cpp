#include "tessera/model/families/gemma.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/layers/norm.h"
#include "tessera/model/sliding_windows.h"

namespace tessera {
namespace {

using ir::ValueId;

// Hugging Face's defaults (configuration_gemma2.py, configuration_gemma3.py).
constexpr std::int64_t kDefaultSlidingWindow = 4096;
constexpr std::int64_t kDefaultQueryScalar = 256;
constexpr std::int64_t kGemma2Period = 2;
constexpr std::int64_t kGemma3Period = 6;
constexpr double kGemma2AttentionCap = 50;
constexpr double kGemma2LogitCap = 30;
constexpr double kGreatestCap = 1e6;

// The rotations of layers with full attention and of those with a window: one table where they are the same.
struct LayerRopes {
  std::optional<ValueId> full;
  std::optional<ValueId> sliding;
};

LayerRopes declare_ropes(LayerBuilder& b, const ModelConfig& config, const TokenInputs& tokens) {
  LayerRopes ropes;
  if (!config.sliding_rope || std::ranges::count(config.sliding_windows, 0) > 0)
    ropes.full = rope_table(b, config, tokens);
  if (config.sliding_rope && config.any_sliding_window())
    ropes.sliding = rope_table(b, config, tokens, *config.sliding_rope, config.head_dim, "rope.sliding_inv_freq");
  return ropes;
}

// Gemma Team, arXiv 2408.00118 and 2503.19786. Norms stand before and behind attention and MLP. Each layer:
//   h += norm(o(attention(rope(qkv(norm(h))))));  h += norm(down(act(gate(norm(h))) · up(norm(h))))
ValueId build_body(LayerBuilder& b, const ModelConfig& config) {
  const TokenInputs tokens = declare_token_inputs(b, config);
  ResidualStream h(b, embed(b, config, tokens), config);
  const LayerRopes ropes = declare_ropes(b, config, tokens);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    const std::string attn = p + "self_attn.";
    const std::string mlp = p + "mlp.";

    const bool slides = config.sliding_windows[static_cast<std::size_t>(layer)] > 0;
    const AttentionInputs in{
        .config = config, .tokens = tokens, .rope = slides && ropes.sliding ? *ropes.sliding : *ropes.full};
    const ValueId attended =
        self_attention(b, in, layer, h.norm(p + "input_layernorm.weight"), qkv_blocks(config, attn), attn);
    h.add(h.norm_of(attended, p + "post_attention_layernorm.weight"));
    const ValueId normed = h.norm(p + "pre_feedforward_layernorm.weight");
    h.add(h.norm_of(gated_mlp(b, config, normed, gate_up_blocks(config, mlp), mlp),
                    p + "post_feedforward_layernorm.weight"));
  }
  b.end_layers();
  return h.norm(b.tensor("norm.weight"));
}

// A soft cap: `absent` where it is not there, none where it is null.
Result<double> read_cap(const Fields& fields, const char* key, double absent) {
  if (!fields.has(key)) return absent;
  return TRY(fields.optional_number(key, 1e-3, kGreatestCap)).value_or(0.0);
}

Status read_shared(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  if (TRY(fields.optional_bool("use_bidirectional_attention")).value_or(false))
    return fields.unsupported("use_bidirectional_attention", "false or null");
  const std::optional<std::int64_t> scalar =
      TRY(fields.optional_int("query_pre_attn_scalar", 1, ModelConfig::kMaxHiddenSize));
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(scalar.value_or(kDefaultQueryScalar)));
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  return ok_status();
}

Status read_gemma2(const Fields& fields, ModelConfig& config) {
  TRY(read_shared(fields, config));
  config.attention_softcap = TRY(read_cap(fields, "attn_logit_softcapping", kGemma2AttentionCap));
  config.logit_softcap = TRY(read_cap(fields, "final_logit_softcapping", kGemma2LogitCap));
  const std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kDefaultSlidingWindow));
  return set_periodic_windows(fields, window, "sliding_window_pattern", kGemma2Period, config);
}

Status read_gemma3(const Fields& fields, ModelConfig& config) {
  TRY(read_shared(fields, config));
  config.attention_softcap = TRY(read_cap(fields, "attn_logit_softcapping", 0));
  config.logit_softcap = TRY(read_cap(fields, "final_logit_softcapping", 0));
  const std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kDefaultSlidingWindow));
  const char* period =
      fields.find("_sliding_window_pattern") != nullptr ? "_sliding_window_pattern" : "sliding_window_pattern";
  return set_periodic_windows(fields, window, period, kGemma3Period, config);
}

ModelConfig gemma3_defaults() {
  return {.vocab_size = 262208,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_hidden_layers = 26,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = 131072,
          .unit_offset_norms = true,
          .hidden_act = Activation::kGeluTanh,
          .tie_word_embeddings = true,
          .qk_norm = QkNorm::kHead,
          .rope = {.theta = 1e6},
          .sliding_rope = RopeConfig{.theta = 1e4}};
}

}  // namespace

ModelFamily gemma2_family() {
  return {.architecture = "Gemma2ForCausalLM",
          .defaults = {.vocab_size = 256000,
                       .hidden_size = 2304,
                       .intermediate_size = 9216,
                       .num_hidden_layers = 26,
                       .num_attention_heads = 8,
                       .num_key_value_heads = 4,
                       .head_dim = 256,
                       .max_position_embeddings = 8192,
                       .unit_offset_norms = true,
                       .hidden_act = Activation::kGeluTanh,
                       .tie_word_embeddings = true},
          .read_config = read_gemma2,
          .build_body = build_body};
}

ModelFamily gemma3_family() {
  return {.architecture = "Gemma3ForCausalLM",
          .defaults = gemma3_defaults(),
          .read_config = read_gemma3,
          .build_body = build_body};
}

ModelFamily gemma3_nested_family() {
  ModelFamily family = gemma3_family();
  family.architecture = "Gemma3ForConditionalGeneration";
  family.defaults.tensor_prefix = "language_model.model.";  // as published
  return family;
}

}  // namespace tessera
