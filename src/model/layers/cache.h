// Declares a model's KV cache: the numbers of heads on one rank, the cache groups (layers that share a page table), and
// the keys and values of a layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/model/config/config.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// The numbers of heads on this rank. If there are more ranks than KV heads, neighbouring ranks hold the same KV head.
struct LocalHeads {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
};
LocalHeads local_heads(const ModelConfig& config, const ModelOptions& options);

// Returns the cache groups in the order of their first layer. Layers with the same window share a group, and all
// recurrent layers share a group. declare_token_inputs() refuses more than ir::kMaxCacheGroups groups.
std::vector<ir::CacheGroup> cache_groups(const ModelConfig& config);
// Returns the index of the group whose layers cache the keys and values of all tokens. A draft's layers belong to this
// group too. If the body has no such group, because all its layers cache latent vectors or have windows, adds an empty
// group to the body.
std::size_t full_group(ir::Graph& body);
// Returns the index of the layer's group, below ir::kMaxCacheGroups.
std::size_t cache_group_of_layer(const ModelConfig& config, std::int64_t layer);

// The keys and values of one layer, and how they are addressed.
struct KvCache {
  ir::ValueId keys;    // state Y[P, page_size, kv_heads, head_dim]: Y is the cache's type, P the number of pages
  ir::ValueId values;  // a state like `keys`
  ir::ValueId slots;   // i32[T]: each token's slot in the group
  std::int64_t group = 0;
  std::int64_t window = 0;  // number of tokens that a row attends to, including itself; 0 for all
  // k_scale and v_scale, which are the last operands of operators on the cache. Empty for cache types without scales
  // (ops/cache/cache_type.h).
  std::vector<ir::ValueId> scales = {};
};
// Declares the states of a layer. If the cache's type has scales, also declares the weights "k_scale.<layer>" and
// "v_scale.<layer>". Exporters use several names for a scale. The scale is read from the checkpoint if
// ModelOptions::stored_type finds one of these names. Otherwise the scale is 1. The names of the layer's attention
// tensors begin with `prefix`.
KvCache declare_kv_cache(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                         const std::string& prefix);
// Stores keys and values [T, kv_heads · head_dim] in the cache.
void store_kv(LayerBuilder& b, const KvCache& cache, ir::ValueId keys, ir::ValueId values);

// How many of the model's cache scales are read from the checkpoint, and how many are 1.
struct CacheScaleCounts {
  std::size_t read = 0;
  std::size_t ones = 0;
};
CacheScaleCounts count_cache_scales(std::span<const WeightSpec> weights);

}  // namespace tessera
