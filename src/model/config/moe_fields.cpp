#include "tessera/model/config/moe_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "tessera/ops/moe/moe_route.h"

namespace tessera {
namespace {

constexpr double kMaxScale = 1e6;
constexpr std::int64_t kMaxSharedExperts = 1024;

// Modules that are not quantised in models whose experts are in MXFP4.
constexpr std::string_view kUnquantisedModules[] = {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                    "model.embed_tokens", "lm_head"};

}  // namespace

Status read_experts(const Fields& fields, const MoeKeys& keys, MoeConfig& moe) {
  const std::optional<std::int64_t> experts = TRY(fields.optional_int(keys.experts, 1, kMaxExperts));
  std::optional<std::int64_t> alias;
  if (!keys.experts_alias.empty()) alias = TRY(fields.optional_int(keys.experts_alias, 1, kMaxExperts));
  if (experts && alias && *experts != *alias)
    return fields.wrong(keys.experts_alias,
                        fmt::format("the same as {} ({}), or no such field", keys.experts, *experts));
  moe.num_experts = experts.value_or(alias.value_or(moe.num_experts));

  const std::int64_t most = std::min(moe.num_experts, kMaxExpertsPerToken);
  const std::optional<std::int64_t> per_token = TRY(fields.optional_int(keys.per_token, 1, most));
  moe.experts_per_token = per_token.value_or(moe.experts_per_token);
  if (moe.experts_per_token > most)
    return fields.wrong(keys.per_token, fmt::format("an integer in [1, {}], of {} experts", most, moe.num_experts));
  const std::optional<std::int64_t> size =
      TRY(fields.optional_int(keys.intermediate, 1, ModelConfig::kMaxIntermediateSize));
  moe.intermediate_size = size.value_or(moe.intermediate_size);
  return ok_status();
}

Status read_sparse_step(const Fields& fields, ModelConfig& config) {
  const std::int64_t step = TRY(fields.optional_int("decoder_sparse_step", 1, ModelConfig::kMaxLayers)).value_or(1);
  config.moe->layers.clear();
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    config.moe->layers.push_back((layer + 1) % step == 0);
  const Json* dense = fields.find("mlp_only_layers");
  if (dense == nullptr) return ok_status();
  const std::string accepted = "a list of layers, as integers of 0 or more";
  if (!dense->is_array()) return fields.wrong("mlp_only_layers", accepted);
  for (const Json& layer : dense->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0) return fields.wrong("mlp_only_layers", accepted);
    if (layer.as_int() < config.num_hidden_layers) config.moe->layers[static_cast<std::size_t>(layer.as_int())] = false;
  }
  return ok_status();
}

Status read_first_dense(const Fields& fields, std::int64_t first_dense, ModelConfig& config) {
  const std::optional<std::int64_t> dense =
      TRY(fields.optional_int("first_k_dense_replace", 0, ModelConfig::kMaxLayers));
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  const std::size_t first = std::min(static_cast<std::size_t>(dense.value_or(first_dense)), layers);
  config.moe->layers.assign(layers, true);
  std::fill_n(config.moe->layers.begin(), first, false);
  const Json* types = fields.find("mlp_layer_types");
  if (types == nullptr) return ok_status();
  const std::string accepted = fmt::format("a list of num_hidden_layers ({}) times \"dense\" or \"sparse\"", layers);
  if (!types->is_array() || types->as_array().size() != layers) return fields.wrong("mlp_layer_types", accepted);
  for (std::size_t i = 0; i < layers; ++i) {
    const Json& type = types->as_array()[i];
    if (!type.is_string() || (type.as_string() != "dense" && type.as_string() != "sparse"))
      return fields.wrong("mlp_layer_types", accepted);
    config.moe->layers[i] = type.as_string() == "sparse";
  }
  return ok_status();
}

Status read_grouped_routing(const Fields& fields, MoeConfig& moe) {
  moe.groups = TRY(fields.optional_int("n_group", 1, kMaxExperts)).value_or(moe.groups);
  if (moe.num_experts % moe.groups != 0)
    return fields.wrong("n_group", fmt::format("a divisor of the number of experts ({})", moe.num_experts));
  // With a correction bias, the score of a group is the sum of the scores of its two best experts, so a group needs two
  // experts.
  if (moe.correction_bias && moe.groups > 1 && moe.num_experts / moe.groups < 2)
    return fields.wrong("n_group", fmt::format("at most {}, so that each group has two of the {} experts",
                                               moe.num_experts / 2, moe.num_experts));
  const std::int64_t kept = std::min(moe.groups_per_token, moe.groups);
  moe.groups_per_token = TRY(fields.optional_int("topk_group", 1, moe.groups)).value_or(kept);
  const std::int64_t available = moe.num_experts / moe.groups * moe.groups_per_token;
  if (moe.experts_per_token > available)
    return fields.wrong(
        "topk_group",
        fmt::format("so many groups that they have at least num_experts_per_tok ({}) experts; they have {}",
                    moe.experts_per_token, available));
  moe.normalise = TRY(fields.optional_bool("norm_topk_prob")).value_or(moe.normalise);
  moe.scale = TRY(fields.optional_number("routed_scaling_factor", 0.0, kMaxScale)).value_or(moe.scale);
  const std::optional<std::int64_t> shared = TRY(fields.optional_int("n_shared_experts", 0, kMaxSharedExperts));
  if (shared) moe.shared_intermediate_size = *shared * moe.intermediate_size;
  if (moe.shared_intermediate_size > ModelConfig::kMaxIntermediateSize)
    return fields.wrong("n_shared_experts", fmt::format("a number whose product with moe_intermediate_size ({}) is at "
                                                        "most {}",
                                                        moe.intermediate_size, ModelConfig::kMaxIntermediateSize));
  return ok_status();
}

Status read_mxfp4(const Json& quantisation, const std::string& file, MoeConfig& moe) {
  const Fields fields(quantisation, file, "quantization_config.");
  const std::optional<std::string> method = TRY(fields.optional_string("quant_method"));
  if (method != "mxfp4") return fields.unsupported("quant_method", "mxfp4");
  moe.mxfp4 = true;
  const Json* unquantised = fields.find("modules_to_not_convert");
  if (unquantised == nullptr) return ok_status();
  const std::string accepted = fmt::format("a list of \"{}\"", fmt::join(kUnquantisedModules, "\", \""));
  if (!unquantised->is_array()) return fields.wrong("modules_to_not_convert", accepted);
  for (const Json& module : unquantised->as_array())
    if (!module.is_string() ||
        std::ranges::find(kUnquantisedModules, module.as_string()) == std::end(kUnquantisedModules))
      return fields.unsupported("modules_to_not_convert", accepted);
  return ok_status();
}

}  // namespace tessera
