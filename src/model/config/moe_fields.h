// Reads a mixture of experts from config.json, in the spellings that several families share. Every error names the
// field.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/fields.h"

namespace tessera {

// The names that a family's config.json gives to the sizes of its mixture.
struct MoeKeys {
  std::string_view experts;             // "num_experts"
  std::string_view experts_alias = {};  // another name that transformers writes for it
  std::string_view per_token = "num_experts_per_tok";
  std::string_view intermediate = "moe_intermediate_size";
};

// Sets num_experts, experts_per_token and intermediate_size; absent ones stay as they are. Refuses more experts than
// routing takes, more experts for a token than there are, and two fields that give different numbers of experts.
Status read_experts(const Fields& fields, const MoeKeys& keys, MoeConfig& moe);

// Reads which layers have experts by Qwen's rule: every decoder_sparse_step-th one, except those of `mlp_only_layers`.
Status read_sparse_step(const Fields& fields, ModelConfig& config);

// Reads which layers have experts by GLM's and DeepSeek's rule. `mlp_layer_types` is a list of "dense" and "sparse".
// Without it, all layers from first_k_dense_replace on have experts; without that, all layers from `first_dense` on.
Status read_first_dense(const Fields& fields, std::int64_t first_dense, ModelConfig& config);

// Reads `n_group`, `topk_group`, `norm_topk_prob`, `routed_scaling_factor` and `n_shared_experts`; a shared expert is
// as large as any other. Call it after read_experts(). Refuses groups into which the experts do not divide, and a
// token's groups if they have fewer experts than the token takes.
Status read_grouped_routing(const Fields& fields, MoeConfig& moe);

// Reads the "quantization_config" of a model in which only the experts are stored in MXFP4, as GPT-OSS is published;
// sets mxfp4. Refuses any other method, and any other list of modules that are not quantised.
Status read_mxfp4(const Json& quantisation, const std::string& file, MoeConfig& moe);

}  // namespace tessera
