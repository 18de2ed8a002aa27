// The memory in which layers keep what later tokens need: a rank's heads, cache groups, and a layer's keys and values.
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

// Heads of this rank. If there are more ranks than KV heads, neighbouring ranks hold the same KV head.
struct LocalHeads {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
};
LocalHeads local_heads(const ModelConfig& config, const ModelOptions& options);

// Returns the cache groups in the order of their first layer. Layers with the same window share a group, and so do
// layers with a state. At most ir::kMaxCacheGroups can be declared (declare_token_inputs).
std::vector<ir::CacheGroup> cache_groups(const ModelConfig& config);
// Returns the index of the layer's group, below ir::kMaxCacheGroups.
std::size_t cache_group_of_layer(const ModelConfig& config, std::int64_t layer);

// One layer's keys and values, and how its group addresses them.
struct KvCache {
  ir::ValueId keys;    // state Y[P, page_size, kv_heads, head_dim]
  ir::ValueId values;  // a state like `keys`
  ir::ValueId slots;   // i32[T]: slots in the group
  std::int64_t group = 0;
  std::int64_t window = 0;  // tokens that a row sees, including itself; 0: all
  // k_scale and v_scale, the last operands of operators on the cache; empty for types without scales
  // (ops/cache/cache_type.h).
  std::vector<ir::ValueId> scales = {};
};
// Declares the states of a layer, and its scales if the cache's type has some: the weights "k_scale.<layer>" and
// "v_scale.<layer>". The scales are the checkpoint's if ModelOptions::stored_type knows one of their tensors, else 1.
// The names of the layer's attention in the checkpoint begin with `prefix`.
KvCache declare_kv_cache(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                         const std::string& prefix);
// Stores keys and values [T, kv_heads · head_dim] in the cache.
void store_kv(LayerBuilder& b, const KvCache& cache, ir::ValueId keys, ir::ValueId values);

// The numbers of scales among the weights: those that are read from the checkpoint, and those that are 1.
struct CacheScaleCounts {
  std::size_t read = 0;
  std::size_t ones = 0;
};
CacheScaleCounts count_cache_scales(std::span<const WeightSpec> weights);

}  // namespace tessera
