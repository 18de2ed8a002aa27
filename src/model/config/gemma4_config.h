// Holds the fields of config.json for the parts of Gemma 4 that Gemma 3 does not have.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct Gemma4Config {
  std::int64_t global_head_dim = 0;         // head_dim of layers with full attention; even
  std::int64_t global_key_value_heads = 0;  // KV heads of layers with full attention; divides num_attention_heads
  bool keys_are_values = false;  // layers with full attention have no v_proj, because their keys also serve as values
  // The last num_shared_layers layers have no KV cache of their own. A shared layer with full attention uses the KV
  // cache of the last unshared layer with full attention. A shared layer with a window uses the KV cache of the last
  // unshared layer with a window.
  std::int64_t num_shared_layers = 0;
  bool double_wide_mlp = false;           // whether the MLPs of the shared layers are twice as wide
  std::int64_t per_layer_input_size = 0;  // size of a layer's own embedding of each token; 0 if layers have none
  std::int64_t per_layer_vocab_size = 0;  // rows of the table of per-layer embeddings
  // Ids that stand for images, videos and sound. In the embedding tables they use the row of the padding token.
  std::vector<std::int64_t> placeholders = {};
};

}  // namespace tessera
