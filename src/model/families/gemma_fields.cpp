#include "tessera/model/families/gemma_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "tessera/model/config/sliding_windows.h"
#include "tessera/ops/moe/moe_route.h"

namespace tessera {
namespace {

// Hugging Face's defaults (configuration_gemma2.py, configuration_gemma3.py, configuration_gemma4.py).
constexpr std::int64_t kDefaultSlidingWindow = 4096;
constexpr std::int64_t kGemma4SlidingWindow = 512;
constexpr std::int64_t kDefaultQueryScalar = 256;
constexpr std::int64_t kGemma2Period = 2;
constexpr std::int64_t kGemma3Period = 6;
constexpr double kGemma2AttentionCap = 50;
constexpr double kGemma2LogitCap = 30;
constexpr std::int64_t kGemma4GlobalHeadDim = 512;
constexpr std::int64_t kGemma4LayerInputSize = 256;

constexpr std::pair<const char*, std::int64_t> kGemma4Placeholders[] = {
    {"image_token_id", 258880}, {"video_token_id", 258884}, {"audio_token_id", 258881}};

constexpr double kGreatestCap = 1e6;

// Reads a soft cap. Returns `absent` if the field is absent, and 0 (no cap) if it is null.
Result<double> read_cap(const Fields& fields, const char* key, double absent) {
  if (!fields.has(key)) return absent;
  return TRY(fields.optional_number(key, 1e-3, kGreatestCap)).value_or(0.0);
}

Status read_shared(const Fields& fields, ModelConfig& config) {
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  return ok_status();
}

// Reads the attention fields of Gemma 2 and 3.
Status read_attention(const Fields& fields, ModelConfig& config) {
  TRY(read_shared(fields, config));
  if (TRY(fields.optional_bool("use_bidirectional_attention")).value_or(false))
    return fields.unsupported("use_bidirectional_attention", "false or null");
  const std::optional<std::int64_t> scalar =
      TRY(fields.optional_int("query_pre_attn_scalar", 1, ModelConfig::kMaxHiddenSize));
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(scalar.value_or(kDefaultQueryScalar)));
  return ok_status();
}

// Reads the sizes of layers with full attention.
Status read_global_heads(const Fields& fields, ModelConfig& config) {
  Gemma4Config& gemma = *config.gemma4;
  const std::optional<std::int64_t> head_dim = TRY(fields.optional_int("global_head_dim", 2, ModelConfig::kMaxHeadDim));
  gemma.global_head_dim = head_dim.value_or(fields.has("global_head_dim") ? config.head_dim : kGemma4GlobalHeadDim);
  if (gemma.global_head_dim % 2 != 0) return fields.wrong("global_head_dim", "an even number");
  if (config.num_attention_heads * gemma.global_head_dim > ModelConfig::kMaxQuerySize)
    return fields.wrong("global_head_dim",
                        fmt::format("a size whose product with num_attention_heads ({}) is at most {}",
                                    config.num_attention_heads, ModelConfig::kMaxQuerySize));

  gemma.keys_are_values = TRY(fields.optional_bool("attention_k_eq_v")).value_or(false);
  const std::optional<std::int64_t> kv_heads =
      TRY(fields.optional_int("num_global_key_value_heads", 1, ModelConfig::kMaxHeads));
  // num_global_key_value_heads takes effect only with attention_k_eq_v, as in Hugging Face.
  gemma.global_key_value_heads =
      gemma.keys_are_values ? kv_heads.value_or(config.num_key_value_heads) : config.num_key_value_heads;
  if (config.num_attention_heads % gemma.global_key_value_heads != 0)
    return fields.wrong("num_global_key_value_heads",
                        fmt::format("a divisor of num_attention_heads ({})", config.num_attention_heads));
  return ok_status();
}

// Reads how many of the last layers use the keys and values of an earlier layer.
Status read_shared_layers(const Fields& fields, ModelConfig& config) {
  Gemma4Config& gemma = *config.gemma4;
  gemma.double_wide_mlp = TRY(fields.optional_bool("use_double_wide_mlp")).value_or(false);
  const std::int64_t most = config.num_hidden_layers - 1;
  gemma.num_shared_layers = TRY(fields.optional_int("num_kv_shared_layers", 0, most)).value_or(0);
  const auto first_shared = config.sliding_windows.end() - gemma.num_shared_layers;
  for (auto window = first_shared; window != config.sliding_windows.end(); ++window) {
    if (std::find(config.sliding_windows.begin(), first_shared, *window) == first_shared)
      return fields.wrong("num_kv_shared_layers",
                          fmt::format("a number that leaves a {} layer before the layers that share keys and values",
                                      *window > 0 ? "sliding_attention" : "full_attention"));
  }
  return ok_status();
}

Status read_layer_inputs(const Fields& fields, ModelConfig& config) {
  Gemma4Config& gemma = *config.gemma4;
  const std::optional<std::int64_t> size =
      TRY(fields.optional_int("hidden_size_per_layer_input", 0, ModelConfig::kMaxHiddenSize));
  gemma.per_layer_input_size = size.value_or(fields.has("hidden_size_per_layer_input") ? 0 : kGemma4LayerInputSize);
  gemma.per_layer_vocab_size =
      TRY(fields.optional_int("vocab_size_per_layer_input", 1, ModelConfig::kMaxVocabSize)).value_or(262144);
  // Every id must have a row in the table of per-layer embeddings.
  if (gemma.per_layer_input_size > 0 && gemma.per_layer_vocab_size < config.vocab_size)
    return fields.wrong("vocab_size_per_layer_input", fmt::format("at least vocab_size ({})", config.vocab_size));
  return ok_status();
}

Status read_mixture(const Fields& fields, ModelConfig& config) {
  if (!TRY(fields.optional_bool("enable_moe_block")).value_or(false)) return ok_status();
  MoeConfig moe{.normalise = true};
  moe.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
  moe.num_experts = TRY(fields.required_int("num_experts", 1, kMaxExperts));
  moe.experts_per_token = TRY(fields.required_int("top_k_experts", 1, std::min(moe.num_experts, kMaxExpertsPerToken)));
  moe.intermediate_size = TRY(fields.required_int("moe_intermediate_size", 1, ModelConfig::kMaxIntermediateSize));
  config.moe = moe;
  return ok_status();
}

}  // namespace

ModelConfig gemma2_defaults() {
  return {.vocab_size = 256000,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_hidden_layers = 26,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = 8192,
          .unit_offset_norms = true,
          .hidden_act = Activation::kGeluTanh,
          .tie_word_embeddings = true};
}

ModelConfig gemma3_defaults() {
  ModelConfig config = gemma2_defaults();
  config.vocab_size = 262208;
  config.max_position_embeddings = 131072;
  config.qk_norm = QkNorm::kHead;
  config.rope = {.theta = 1e6};
  config.sliding_rope = RopeConfig{.theta = 1e4};
  return config;
}

ModelConfig gemma4_defaults() {
  ModelConfig config = gemma3_defaults();
  config.vocab_size = 262144;
  config.num_hidden_layers = 30;
  config.unit_offset_norms = false;
  config.round_norms_once = true;
  config.rope = {.type = RopeType::kProportional, .theta = 1e6, .partial_rotary_factor = 0.25};
  config.gemma4 = Gemma4Config{};
  return config;
}

Status read_gemma2_config(const Fields& fields, ModelConfig& config) {
  TRY(read_attention(fields, config));
  config.attention_softcap = TRY(read_cap(fields, "attn_logit_softcapping", kGemma2AttentionCap));
  config.logit_softcap = TRY(read_cap(fields, "final_logit_softcapping", kGemma2LogitCap));
  const std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kDefaultSlidingWindow));
  return set_periodic_windows(fields, window, "sliding_window_pattern", kGemma2Period, config);
}

Status read_gemma3_config(const Fields& fields, ModelConfig& config) {
  TRY(read_attention(fields, config));
  config.attention_softcap = TRY(read_cap(fields, "attn_logit_softcapping", 0));
  config.logit_softcap = TRY(read_cap(fields, "final_logit_softcapping", 0));
  const std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kDefaultSlidingWindow));
  const char* period =
      fields.find("_sliding_window_pattern") != nullptr ? "_sliding_window_pattern" : "sliding_window_pattern";
  return set_periodic_windows(fields, window, period, kGemma3Period, config);
}

Status read_gemma4_config(const Fields& fields, ModelConfig& config) {
  TRY(read_shared(fields, config));
  config.attention_scale = 1.0;
  config.logit_softcap = TRY(read_cap(fields, "final_logit_softcapping", 0));
  // The value "vision" means that the tokens of an image attend to one another in both directions. It does not affect
  // text.
  const std::optional<std::string> both_ways = TRY(fields.optional_string("use_bidirectional_attention"));
  if (both_ways && *both_ways != "vision")
    return fields.unsupported("use_bidirectional_attention", "\"vision\" or null");
  const std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kGemma4SlidingWindow));
  TRY(set_periodic_windows(fields, window, "sliding_window_pattern", kGemma3Period, config));
  if (config.sliding_windows.back() > 0) {
    if (fields.find("layer_types") != nullptr)
      return fields.unsupported("layer_types", "a list whose last entry is \"full_attention\"");
    config.sliding_windows.back() = 0;  // Hugging Face also gives the last layer full attention
  }
  TRY(read_global_heads(fields, config));
  TRY(read_shared_layers(fields, config));
  TRY(read_layer_inputs(fields, config));
  return read_mixture(fields, config);
}

Status read_gemma4_nested_config(const Fields& fields, ModelConfig& config) {
  TRY(read_gemma4_config(fields, config));
  for (const auto& [key, absent] : kGemma4Placeholders) {
    std::optional<std::int64_t> id = TRY(fields.optional_int(key, 0, ModelConfig::kMaxVocabSize));
    if (!fields.has(key)) id = absent;
    if (id && *id < config.vocab_size) config.gemma4->placeholders.push_back(*id);
  }
  return ok_status();
}

}  // namespace tessera
