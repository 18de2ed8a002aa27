#include "tessera/model/families/gpt_oss.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tessera/model/config/moe_fields.h"
#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/llama_body.h"
#include "tessera/model/layers/moe.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {
namespace {

// Hugging Face's defaults: kDefaultSwigluLimit is in modeling_gpt_oss.py, the others in configuration_gpt_oss.py.
constexpr std::int64_t kGptOssDefaultSlidingWindow = 128;
constexpr std::int64_t kWindowPeriod = 2;
constexpr double kDefaultSwigluLimit = 7.0;

MoeTensors gpt_oss_experts(const std::string& layer) {
  return {.router = {.weight = layer + "mlp.router"},
          .experts = {.prefix = layer + "mlp.experts.", .layout = ExpertLayout::kInterleaved}};
}

// Builds the body (OpenAI, arXiv 2508.10925): Mixtral's layers, with biases in all linears and sinks in attention.
ir::ValueId build_gpt_oss_body(LayerBuilder& b, const ModelConfig& config) {
  return build_llama_body(b, config, qkv_blocks, [&](const FeedForwardInput& in) {
    return moe_mlp(b, config, in.x, in.slots, gpt_oss_experts(in.prefix));
  });
}

Status read_swiglu(const Fields& fields, MoeConfig& moe) {
  moe.swiglu_limit = TRY(fields.optional_number("swiglu_limit", 1e-3, 1e6)).value_or(kDefaultSwigluLimit);
  const double alpha = static_cast<double>(kSwigluAlpha);
  const std::optional<double> given = TRY(fields.optional_number("swiglu_alpha", 0.0, 1e6));
  if (given && static_cast<float>(*given) != kSwigluAlpha)
    return fields.unsupported("swiglu_alpha", fmt::format("{:.3f}", alpha));
  return ok_status();
}

Status read_gpt_oss_mixture(const Fields& fields, ModelConfig& config) {
  MoeConfig& moe = *config.moe;
  moe.intermediate_size = config.intermediate_size;
  moe.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
  TRY(read_experts(
      fields, {.experts = "num_local_experts", .experts_alias = "num_experts", .intermediate = "intermediate_size"},
      moe));
  // Published files give the number of experts per token under two names, num_experts_per_tok and OpenAI's own
  // experts_per_token.
  const std::optional<std::int64_t> alias = TRY(fields.optional_int("experts_per_token", 1, moe.num_experts));
  if (alias && *alias != moe.experts_per_token)
    return fields.wrong("experts_per_token",
                        fmt::format("the same as num_experts_per_tok ({}), or no such field", moe.experts_per_token));
  if (moe.mxfp4)
    for (const auto& [key, size] :
         {std::pair("hidden_size", config.hidden_size), {"intermediate_size", config.intermediate_size}})
      if (size % kMxfp4Block != 0)
        return fields.wrong(key, fmt::format("a multiple of {} where experts are stored in mxfp4", kMxfp4Block));
  return read_swiglu(fields, moe);
}

Status read_gpt_oss_config(const Fields& fields, ModelConfig& config) {
  if (config.hidden_act != Activation::kSilu) return fields.unsupported("hidden_act", "silu");
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(true);
  const std::optional<std::int64_t> window = TRY(read_sliding_window(fields, kGptOssDefaultSlidingWindow));
  TRY(set_periodic_windows(fields, window, "sliding_window_pattern", kWindowPeriod, config));
  return read_gpt_oss_mixture(fields, config);
}

}  // namespace

ModelFamily gpt_oss_family() {
  return {.architecture = "GptOssForCausalLM",
          .defaults = {.vocab_size = 201088,
                       .hidden_size = 2880,
                       .intermediate_size = 2880,
                       .num_hidden_layers = 36,
                       .num_attention_heads = 64,
                       .num_key_value_heads = 8,
                       .head_dim = 64,
                       .max_position_embeddings = 131072,
                       .rms_norm_eps = 1e-5,
                       .round_norms_once = true,
                       .attention_sinks = true,
                       .rope = {.type = RopeType::kYarn,
                                .theta = 1.5e5,
                                .factor = 32,
                                .original_max_position_embeddings = 4096,
                                .truncate = false},
                       .moe = MoeConfig{.num_experts = 128,
                                        .experts_per_token = 4,
                                        .normalise = true,
                                        .router_bias = true,
                                        .expert_bias = true}},
          .mxfp4_experts = true,
          .read_config = read_gpt_oss_config,
          .build_body = build_gpt_oss_body};
}

}  // namespace tessera
