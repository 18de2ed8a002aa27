// The sizes in config.json of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).
#pragma once

#include <cstdint>

namespace tessera {

struct MlaConfig {
  std::int64_t q_lora_rank = 0;   // size of the queries' latent; 0: queries are projected directly
  std::int64_t kv_lora_rank = 0;  // size of the latent of keys and values, which is cached
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;  // size of the rotated part; all heads share one rotated key
  std::int64_t v_head_dim = 0;
  bool interleaved = true;  // rotated pairs are neighbours
};

}  // namespace tessera
