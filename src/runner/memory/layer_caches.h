// What a model's graph declares of its layers' caches: the cache groups list the layers, and operators read and write
// the groups' states.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/model/stages.h"

namespace tessera {

struct LayerCaches {
  // Every layer has an operator that graphs hold for any batch: `attention` over pages of keys and values, which takes
  // query heads in multiples of KV heads, `latent_attention` over pages of latents, which all query heads share, or
  // `gated_delta_net` over a state.
  bool standard_gqa = true;
  // Layers of no cache group, or of one whose states no operator takes.
  std::vector<std::int64_t> undeclared;
};

LayerCaches layer_caches(const ir::Graph& body, const LayerRange& layers);

}  // namespace tessera
