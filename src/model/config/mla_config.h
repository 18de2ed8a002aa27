// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the sizes in config.json.
#pragma once

#include <cstdint>

namespace tessera {

struct MlaConfig {
  std::int64_t q_lora_rank = 0;   // of the queries' latent; 0: queries are projected at once
  std::int64_t kv_lora_rank = 0;  // of the latent of keys and values, which is cached
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;  // rotated; one key of it serves all heads
  std::int64_t v_head_dim = 0;
  bool interleaved = true;  // rotated pairs are neighbours
};

}  // namespace tessera
