// Reads the sizes of multi-head latent attention from config.json.
#pragma once

#include "tessera/base/json_fields.h"
#include "tessera/base/status.h"
#include "tessera/model/config/config.h"

namespace tessera {

// Sets config.mla. `kv_lora_rank`, `qk_nope_head_dim`, `qk_rope_head_dim` and `v_head_dim` must be present. If
// `q_lora_rank` is null, queries have no latent vector. If this field is absent, `absent_q_lora_rank` applies.
// `rope_interleave` is true if absent. Also sets config.head_dim to the size of the rotated part. Reads from
// `attention_bias` whether the projections have biases.
Status read_mla(const Fields& fields, std::int64_t absent_q_lora_rank, ModelConfig& config);

}  // namespace tessera
