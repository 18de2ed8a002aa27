// The sizes in config.json of gated delta nets (Yang et al., arXiv 2412.06464), which replace attention.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct DeltaNetConfig {
  std::vector<bool> layers = {};  // [num_hidden_layers]: whether the layer is a delta net; others have attention
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  // a multiple of key_heads
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_size = 0;  // taps of the causal convolution before the delta net
};

}  // namespace tessera
