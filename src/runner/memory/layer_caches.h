// Finds out which layers of a model's graph have a cache that operators use. Each cache group of the graph lists its
// layers, and operators read and write the group's states.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/model/stages.h"

namespace tessera {

struct LayerCaches {
  // True if every layer mixes tokens by an operator that captured graphs can run for any batch. There are three such
  // operators. `attention` reads pages of keys and values, and its number of query heads is a multiple of its number of
  // KV heads. `latent_attention` reads pages of latents, which all query heads share. `gated_delta_net` reads and
  // writes a state.
  bool standard_gqa = true;
  // The indices of the layers that have no cache group, or whose cache group has states that no operator uses.
  std::vector<std::int64_t> undeclared;
};

LayerCaches layer_caches(const ir::Graph& body, const LayerRange& layers);

}  // namespace tessera
