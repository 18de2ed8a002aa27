// Writes an EAGLE-3 layer of random numbers, for tests of a target model without an EAGLE-3 layer in the reference
// data.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/weights/safetensors.h"

namespace tessera::test {

// Writes an EAGLE-3 layer of random numbers for goldens/deepseek-v3. `folder` must exist.
inline void write_random_eagle(const std::string& folder) {
  constexpr std::int64_t kHidden = 32;
  constexpr std::int64_t kVocab = 512;
  std::mt19937 generator(7);
  std::deque<std::vector<float>> values;
  std::vector<StoredTensor> tensors;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    const std::int64_t columns = shape.size() > 1 ? shape[1] : 1;
    std::normal_distribution<float> number(columns > 1 ? 0.0F : 1.0F, columns > 1 ? 0.2F : 0.1F);
    std::vector<float>& made = values.emplace_back(static_cast<std::size_t>(shape[0] * columns));
    for (float& value : made) value = number(generator);
    tensors.push_back(
        {.name = name, .dtype = StoredDtype::kF32, .shape = std::move(shape), .data = std::as_bytes(std::span(made))});
  };
  add("fc.weight", {kHidden, 3 * kHidden});
  for (const char* norm : {"midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight",
                           "midlayer.post_attention_layernorm.weight", "norm.weight"})
    add(norm, {kHidden});
  add("midlayer.self_attn.q_proj.weight", {4 * 16, 2 * kHidden});
  add("midlayer.self_attn.k_proj.weight", {2 * 16, 2 * kHidden});
  add("midlayer.self_attn.v_proj.weight", {2 * 16, 2 * kHidden});
  add("midlayer.self_attn.o_proj.weight", {kHidden, 4 * 16});
  add("midlayer.mlp.gate_proj.weight", {48, kHidden});
  add("midlayer.mlp.up_proj.weight", {48, kHidden});
  add("midlayer.mlp.down_proj.weight", {kHidden, 48});
  add("lm_head.weight", {kVocab, kHidden});
  ASSERT_TRUE(write_safetensors(folder + "/model.safetensors", tensors).ok());
  std::ofstream(folder + "/config.json") << R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
      "hidden_size": 32, "vocab_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 16, "intermediate_size": 48, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32"})";
}

}  // namespace tessera::test
