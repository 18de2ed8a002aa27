// Holds the sizes of gated delta nets (Yang et al., arXiv 2412.06464) in config.json. A delta net replaces attention in
// some layers.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct DeltaNetConfig {
  std::vector<bool> layers = {};  // [num_hidden_layers]: true if the layer has a delta net, false if it has attention
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  // a multiple of key_heads
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_size = 0;  // taps of the causal convolution before the delta net
};

}  // namespace tessera
