#include "tessera/model/config/mla_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

Status check_sizes(const Fields& fields, const ModelConfig& config) {
  const MlaConfig& mla = *config.mla;
  if (mla.qk_rope_head_dim % 2 != 0) return fields.wrong("qk_rope_head_dim", "an even number");
  const std::int64_t widest =
      std::max({mla.kv_lora_rank + mla.qk_rope_head_dim, mla.qk_nope_head_dim + mla.qk_rope_head_dim,
                mla.qk_nope_head_dim + mla.v_head_dim});
  if (config.num_attention_heads * widest > ModelConfig::kMaxQuerySize)
    return fields.wrong("num_attention_heads",
                        fmt::format("a number whose product with {} values of a head is at most {}", widest,
                                    ModelConfig::kMaxQuerySize));
  return ok_status();
}

}  // namespace

Status read_mla(const Fields& fields, std::int64_t absent_q_lora_rank, ModelConfig& config) {
  using C = ModelConfig;
  MlaConfig mla;
  mla.q_lora_rank = TRY(fields.optional_int("q_lora_rank", 1, C::kMaxHiddenSize))
                        .value_or(fields.has("q_lora_rank") ? 0 : absent_q_lora_rank);
  mla.kv_lora_rank = TRY(fields.required_int("kv_lora_rank", 1, C::kMaxHiddenSize));
  mla.qk_nope_head_dim = TRY(fields.required_int("qk_nope_head_dim", 1, C::kMaxHeadDim));
  mla.qk_rope_head_dim = TRY(fields.required_int("qk_rope_head_dim", 2, C::kMaxHeadDim));
  mla.v_head_dim = TRY(fields.required_int("v_head_dim", 1, C::kMaxHeadDim));
  mla.interleaved = TRY(fields.optional_bool("rope_interleave")).value_or(true);
  config.mla = mla;
  config.head_dim = mla.qk_rope_head_dim;
  config.qkv_bias = config.o_bias = TRY(fields.optional_bool("attention_bias")).value_or(false);
  return check_sizes(fields, config);
}

}  // namespace tessera
