#include "tessera/model/layers/cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

std::string group_name(std::int64_t window) { return window == 0 ? "full" : fmt::format("window.{}", window); }

}  // namespace

LocalHeads local_heads(const ModelConfig& config, const ModelOptions& options) {
  return {.heads = config.num_attention_heads / options.tp_size,
          .kv_heads = std::max<std::int64_t>(config.num_key_value_heads / options.tp_size, 1)};
}

std::vector<ir::CacheGroup> cache_groups(const ModelConfig& config) {
  std::vector<ir::CacheGroup> groups;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::int64_t window = config.sliding_windows[static_cast<std::size_t>(layer)];
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const ir::CacheGroup& g) { return g.window == window; });
    if (group == groups.end()) {
      groups.push_back({.name = group_name(window),
                        .kind = window == 0 ? ir::CacheGroup::Kind::kPaged : ir::CacheGroup::Kind::kWindow,
                        .window = window,
                        .layers = {}});
      group = groups.end() - 1;
    }
    group->layers.push_back(layer);
  }
  return groups;
}

KvCache declare_kv_cache(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer) {
  const std::int64_t kv_heads = local_heads(config, b.options()).kv_heads;
  const std::vector<ir::CacheGroup> groups = cache_groups(config);
  const std::int64_t window = config.sliding_windows[static_cast<std::size_t>(layer)];
  const auto group =
      std::find_if(groups.begin(), groups.end(), [&](const ir::CacheGroup& g) { return g.window == window; });
  // A group past the last symbol was refused when the inputs were declared.
  const auto index = std::min(static_cast<std::size_t>(group - groups.begin()), ir::kMaxCacheGroups - 1);
  const ir::Type type{b.options().kv_cache_type(),
                      {ir::page_symbol(index), b.options().page_size, kv_heads, config.head_dim}};
  return {.keys = b.graph.state(fmt::format("k_cache.{}", layer), type),
          .values = b.graph.state(fmt::format("v_cache.{}", layer), type),
          .slots = inputs.slots[index],
          .group = static_cast<std::int64_t>(index),
          .window = window};
}

}  // namespace tessera
