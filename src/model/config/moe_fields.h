// Reads the mixture-of-experts fields of config.json, in the spellings that several families share. Every error names
// the field.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/base/json_fields.h"
#include "tessera/base/status.h"
#include "tessera/model/config/config.h"

namespace tessera {

// The names of the size fields, which differ between families.
struct MoeKeys {
  std::string_view experts;             // "num_experts"
  std::string_view experts_alias = {};  // another name that transformers writes for the number of experts
  std::string_view per_token = "num_experts_per_tok";
  std::string_view intermediate = "moe_intermediate_size";
};

// Sets num_experts, experts_per_token and intermediate_size. A member whose field is absent keeps its value. Refuses
// more experts than the routing kernels support, an experts_per_token above num_experts, and two fields that give
// different numbers of experts.
Status read_experts(const Fields& fields, const MoeKeys& keys, MoeConfig& moe);

// Reads which layers have experts. By Qwen's rule these are every decoder_sparse_step-th layer, except the layers of
// `mlp_only_layers`.
Status read_sparse_step(const Fields& fields, ModelConfig& config);

// Reads which layers have experts, by the rule of GLM and DeepSeek. `mlp_layer_types` is a list of "dense" and
// "sparse", where a sparse layer has experts. Without this list, the first `first_k_dense_replace` layers are dense,
// and all later layers are sparse. If `first_k_dense_replace` is absent too, the first `first_dense` layers are dense.
Status read_first_dense(const Fields& fields, std::int64_t first_dense, ModelConfig& config);

// Reads `n_group`, `topk_group`, `norm_topk_prob`, `routed_scaling_factor` and `n_shared_experts`. A shared expert has
// the same intermediate size as a routed expert. Call this function after read_experts(). Refuses a number of groups
// that does not divide the number of experts, and a `topk_group` whose groups together have fewer experts than a token
// uses.
Status read_grouped_routing(const Fields& fields, MoeConfig& moe);

// Reads the "quantization_config" of a model in which only the experts are stored in MXFP4, like the published GPT-OSS,
// and sets moe.mxfp4. Refuses any other method, and a list of unquantised modules with an entry that the published
// GPT-OSS does not have.
Status read_mxfp4(const Json& quantisation, const std::string& file, MoeConfig& moe);

}  // namespace tessera
