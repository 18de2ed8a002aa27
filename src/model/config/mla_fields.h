// Reads the sizes of multi-head latent attention from config.json.
#pragma once

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/fields.h"

namespace tessera {

// Sets config.mla from `kv_lora_rank`, `qk_nope_head_dim`, `qk_rope_head_dim` and `v_head_dim`, which must be present,
// from `q_lora_rank` (null: queries have no latent; absent: `absent_q_lora_rank`) and from `rope_interleave` (absent:
// true). config.head_dim becomes the size of the rotated part, and the biases follow `attention_bias`.
Status read_mla(const Fields& fields, std::int64_t absent_q_lora_rank, ModelConfig& config);

}  // namespace tessera
