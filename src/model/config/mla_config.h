// Holds the sizes of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), as config.json states them.
#pragma once

#include <cstdint>

namespace tessera {

struct MlaConfig {
  std::int64_t q_lora_rank = 0;   // size of the queries' latent vector; 0 if queries are projected without one
  std::int64_t kv_lora_rank = 0;  // size of the latent vector of keys and values, which is cached
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;  // size of the rotated part of a query or key; all heads share one rotated key
  std::int64_t v_head_dim = 0;
  bool interleaved = true;  // true if dimensions 2i and 2i + 1 form a rotated pair
};

}  // namespace tessera
