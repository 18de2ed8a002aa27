// What Gemma 4's layers have beyond Gemma 3's: what config.json says of it.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct Gemma4Config {
  std::int64_t global_head_dim = 0;         // of layers with full attention: even
  std::int64_t global_key_value_heads = 0;  // likewise; divides num_attention_heads
  bool keys_are_values = false;             // in layers with full attention, which have no v_proj
  // The last layers, which attend to the keys and values of the last layer of their kind before them.
  std::int64_t num_shared_layers = 0;
  bool double_wide_mlp = false;           // in those
  std::int64_t per_layer_input_size = 0;  // of the embeddings that each layer has of its own; 0: none
  std::int64_t per_layer_vocab_size = 0;  // rows of their table
  // Ids that stand for images, videos and sound. Embedded as the padding token.
  std::vector<std::int64_t> placeholders = {};
};

}  // namespace tessera
