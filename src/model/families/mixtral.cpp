#include "tessera/model/families/mixtral.h"

#include "tessera/model/config/moe_fields.h"
#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/llama_body.h"
#include "tessera/model/layers/moe.h"

namespace tessera {
namespace {

MoeTensors mixtral_experts(const std::string& layer) {
  const std::string prefix = layer + "block_sparse_moe.";
  return {.router = {.weight = prefix + "gate"},
          .experts = {.prefix = prefix + "experts.", .gate = "w1", .up = "w3", .down = "w2"}};
}

// Builds the body (Jiang et al., arXiv 2401.04088): Mistral's layers, in which experts replace every MLP.
ir::ValueId build_mixtral_body(LayerBuilder& b, const ModelConfig& config) {
  return build_llama_body(b, config, qkv_blocks, [&](const FeedForwardInput& in) {
    return moe_mlp(b, config, in.x, in.slots, mixtral_experts(in.prefix));
  });
}

Status read_mixtral_config(const Fields& fields, ModelConfig& config) {
  TRY(read_experts(fields, {.experts = "num_local_experts", .intermediate = "intermediate_size"}, *config.moe));
  config.moe->layers.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
  return set_sliding_windows(fields, TRY(read_sliding_window(fields, std::nullopt)), /*first=*/0, config);
}

}  // namespace

ModelFamily mixtral_family() {
  return {
      .architecture = "MixtralForCausalLM",
      .defaults = {.rms_norm_eps = 1e-5, .moe = MoeConfig{.num_experts = 8, .experts_per_token = 2, .normalise = true}},
      .read_config = read_mixtral_config,
      .build_body = build_mixtral_body};
}

}  // namespace tessera
