// Writes adapters of random numbers for tests, for any model.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera::test {

// Writes an adapter for all modules of the layout. A module that takes a low-rank adapter gets two matrices, A and B,
// of rank 2. A module whose whole matrix an adapter replaces gets a new matrix if `seed` is odd, and nothing if `seed`
// is even. `folder` must exist.
inline void write_random_adapter(const std::string& folder, const AdapterLayout& layout, std::uint32_t seed) {
  constexpr std::int64_t kRank = 2;
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-0.3F, 0.3F);
  std::deque<std::vector<float>> values;
  std::vector<StoredTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::vector<float>& made = values.emplace_back(static_cast<std::size_t>(shape[0] * shape[1]));
    for (float& value : made) value = number(random);
    tensors.push_back({.name = "base_model.model." + name,
                       .dtype = StoredDtype::kF32,
                       .shape = std::move(shape),
                       .data = std::as_bytes(std::span(made))});
  };
  std::set<std::string> written;
  for (std::size_t rank = 0; rank < layout.num_ranks(); ++rank)
    for (const AdaptableLinear& linear : layout.linears_of(rank))
      for (const AdaptableModule& module : linear.modules) {
        if ((linear.whole && seed % 2 == 0) || !written.insert(module.name).second) continue;
        if (linear.whole) {
          add(module.name + ".weight",
              linear.embeds ? std::vector{module.cols, module.rows} : std::vector{module.rows, module.cols});
          continue;
        }
        add(module.name + (linear.embeds ? ".lora_embedding_A" : ".lora_A.weight"), {kRank, module.cols});
        add(module.name + (linear.embeds ? ".lora_embedding_B" : ".lora_B.weight"), {module.rows, kRank});
      }
  EXPECT_TRUE(write_safetensors(folder + "/adapter_model.safetensors", tensors).ok());
  std::ofstream(folder + "/adapter_config.json") << R"({"r": 2, "lora_alpha": 2})";
}

}  // namespace tessera::test
