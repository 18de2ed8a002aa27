#include "tessera/runner/memory/layer_caches.h"

#include <algorithm>

#include "tessera/ops/attention/attention.h"
#include "tessera/ops/latent/latent_attention.h"
#include "tessera/ops/recurrent/gated_delta_net.h"

namespace tessera {
namespace {

bool takes_states_of(const ir::Graph& body, const ir::Node& node, std::size_t group) {
  return std::any_of(node.operands.begin(), node.operands.end(), [&](ir::ValueId id) {
    const ir::Value& value = body.value(id);
    return value.kind == ir::ValueKind::kState && ir::cache_group_of(value.type) == group;
  });
}

// Returns the operator that mixes tokens through caches of this kind. Captured graphs can run this operator for any
// batch.
std::string_view mixer_over(ir::CacheGroup::Kind kind) {
  switch (kind) {
    case ir::CacheGroup::Kind::kPaged:
    case ir::CacheGroup::Kind::kWindow: return kAttention.name;
    case ir::CacheGroup::Kind::kLatent: return kLatentAttention.name;
    case ir::CacheGroup::Kind::kState: return kGatedDeltaNet.name;
  }
  return "";
}

}  // namespace

LayerCaches layer_caches(const ir::Graph& body, const LayerRange& layers) {
  LayerCaches caches;
  const std::vector<ir::CacheGroup>& groups = body.cache_groups;
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const ir::CacheGroup& group) {
      return std::find(group.layers.begin(), group.layers.end(), layer) != group.layers.end();
    });
    std::ptrdiff_t users = 0;
    std::ptrdiff_t mixers = 0;
    if (found != groups.end()) {
      const auto index = static_cast<std::size_t>(found - groups.begin());
      for (const ir::Node& node : body.nodes) {
        if (!takes_states_of(body, node, index)) continue;
        ++users;
        mixers += node.op == mixer_over(found->kind) ? 1 : 0;
      }
      caches.standard_gqa = caches.standard_gqa && mixers == std::ssize(found->layers);
    } else {
      caches.standard_gqa = false;
    }
    if (users == 0) caches.undeclared.push_back(layer);
  }
  return caches;
}

}  // namespace tessera
