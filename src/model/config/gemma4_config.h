// Fields of config.json for the parts of Gemma 4's layers that Gemma 3's layers lack.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct Gemma4Config {
  std::int64_t global_head_dim = 0;         // head_dim of layers with full attention: even
  std::int64_t global_key_value_heads = 0;  // KV heads of layers with full attention; divides num_attention_heads
  bool keys_are_values = false;             // layers with full attention have no v_proj: values are the keys
  // Number of last layers that attend to the keys and values of the last earlier layer of their kind.
  std::int64_t num_shared_layers = 0;
  bool double_wide_mlp = false;           // whether the MLPs of the shared layers are twice as wide
  std::int64_t per_layer_input_size = 0;  // size of each layer's own embeddings; 0: none
  std::int64_t per_layer_vocab_size = 0;  // rows of the table of these embeddings
  // Ids that stand for images, videos and sound. They are embedded as the padding token.
  std::vector<std::int64_t> placeholders = {};
};

}  // namespace tessera
