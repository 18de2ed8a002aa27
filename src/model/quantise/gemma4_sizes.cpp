#include "tessera/model/quantise/gemma4_sizes.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/model/families/gemma4.h"

namespace tessera {
namespace {

constexpr float kUnrotated = 1e30F;

std::string key(std::string_view name) { return "gemma4." + std::string(name); }

// Writes one number if all layers have the same, and else the list.
void write_of_layers(std::string_view name, const std::vector<std::int32_t>& values, GgufMetadata& metadata) {
  if (std::ranges::count(values, values.front()) == std::ssize(values)) {
    metadata.set_uint32(key(name), values.front());
  } else {
    metadata.set_int32s(key(name), values);
  }
}

}  // namespace

void write_gemma4_sizes(const ModelConfig& config, GgufMetadata& metadata) {
  const Gemma4Config& gemma = *config.gemma4;
  std::vector<bool> windows;
  std::vector<std::int32_t> mlps;
  std::vector<std::int32_t> kv_heads;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const ModelConfig sizes = gemma4_layer_config(config, layer);
    windows.push_back(config.sliding_windows[static_cast<std::size_t>(layer)] > 0);
    mlps.push_back(static_cast<std::int32_t>(sizes.intermediate_size));
    kv_heads.push_back(static_cast<std::int32_t>(sizes.num_key_value_heads));
  }
  write_of_layers("feed_forward_length", mlps, metadata);
  write_of_layers("attention.head_count_kv", kv_heads, metadata);
  metadata.set_bools(key("attention.sliding_window_pattern"), windows);
  const auto integer = [&](std::string_view name, std::int64_t value) { metadata.set_uint32(key(name), value); };
  integer("attention.key_length", gemma.global_head_dim);
  integer("attention.value_length", gemma.global_head_dim);
  integer("attention.key_length_swa", config.head_dim);
  integer("attention.value_length_swa", config.head_dim);
  integer("attention.shared_kv_layers", gemma.num_shared_layers);
  integer("embedding_length_per_layer_input", gemma.per_layer_input_size);
  integer("rope.dimension_count", gemma.global_head_dim);
  integer("rope.dimension_count_swa", config.head_dim);
}

std::vector<float> gemma4_rope_factors(const ModelConfig& config) {
  const auto size = static_cast<double>(config.gemma4->global_head_dim);
  const auto rotated = static_cast<std::ptrdiff_t>(size * config.rope.partial_rotary_factor / 2);
  std::vector<float> factors(static_cast<std::size_t>(config.gemma4->global_head_dim / 2), kUnrotated);
  std::fill_n(factors.begin(), rotated, 1.0F);
  return factors;
}

}  // namespace tessera
