// Finds which layers of a model's graph declare a cache. A cache group lists its layers, and operators read and write
// the states of the group.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/model/stages.h"

namespace tessera {

struct LayerCaches {
  // True if every layer has a token-mixing operator that graphs can run for any batch. These operators are `attention`
  // over pages of keys and values (the number of query heads is a multiple of the number of KV heads),
  // `latent_attention` over pages of latents that all query heads share, and `gated_delta_net` over a state.
  bool standard_gqa = true;
  // The indices of the layers that have no cache group, or whose cache group has states that no operator uses.
  std::vector<std::int64_t> undeclared;
};

LayerCaches layer_caches(const ir::Graph& body, const LayerRange& layers);

}  // namespace tessera
