#include "tessera/model/layers/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/ops/cache/cache_type.h"

namespace tessera {
namespace {

constexpr std::string_view kScale = "_scale.";  // follows "k" or "v" in the names of weights

ir::CacheGroup full_layers() {
  return {.name = "full", .kind = ir::CacheGroup::Kind::kPaged, .window = 0, .layers = {}};
}

// Returns the cache group to which the layer belongs, with an empty list of layers.
ir::CacheGroup group_of(const ModelConfig& config, std::int64_t layer) {
  using Kind = ir::CacheGroup::Kind;
  const auto index = static_cast<std::size_t>(layer);
  if (config.delta_net && config.delta_net->layers[index])
    return {.name = "state", .kind = Kind::kState, .window = 0, .layers = {}};
  const std::int64_t window = config.sliding_windows[index];
  if (window == 0) return full_layers();
  return {.name = fmt::format("window.{}", window), .kind = Kind::kWindow, .window = window, .layers = {}};
}

// Returns the names that a checkpoint may use for the scale of keys (`kind` is "k") or of values ("v"). The names are
// those of ModelOpt, of compressed-tensors, and of older exporters. Some older exporters write one scale for both keys
// and values.
std::vector<std::string> scale_tensors(const std::string& prefix, std::string_view kind) {
  const std::string k(kind);
  return {prefix + k + "_proj." + k + "_scale", prefix + k + "_scale",
          prefix + "attn." + k + "_scale",      prefix + k + "_proj.output_scale",
          prefix + "qkv_proj." + k + "_scale",  prefix + "kv_scale"};
}

ir::ValueId declare_scale(LayerBuilder& b, std::int64_t layer, const std::string& prefix, std::string_view kind) {
  WeightSpec spec{.name = fmt::format("{}{}{}", kind, kScale, layer), .type = {ir::DType::kFloat32, {1}}};
  const StoredTypeOf& stored = b.options().stored_type;
  for (const std::string& tensor : scale_tensors(prefix, kind)) {
    if (!stored || !stored(tensor)) continue;
    spec.parts = {{.tensor = tensor, .shape = {1, 1}, .storage = GridStorage{.rows = 1, .cols = 1}}};
    return b.add_weight(std::move(spec));
  }
  spec.constant = {1.0F};
  return b.add_weight(std::move(spec));
}

}  // namespace

LocalHeads local_heads(const ModelConfig& config, const ModelOptions& options) {
  return {.heads = config.num_attention_heads / options.tp_size,
          .kv_heads = std::max<std::int64_t>(config.num_key_value_heads / options.tp_size, 1)};
}

std::vector<ir::CacheGroup> cache_groups(const ModelConfig& config) {
  std::vector<ir::CacheGroup> groups;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    ir::CacheGroup own = group_of(config, layer);
    auto group = std::ranges::find(groups, own.name, &ir::CacheGroup::name);
    if (group == groups.end()) group = groups.insert(groups.end(), std::move(own));
    group->layers.push_back(layer);
  }
  return groups;
}

std::size_t full_group(ir::Graph& body) {
  std::vector<ir::CacheGroup>& groups = body.cache_groups;
  auto full = std::ranges::find(groups, ir::CacheGroup::Kind::kPaged, &ir::CacheGroup::kind);
  if (full == groups.end()) full = groups.insert(groups.end(), full_layers());
  return static_cast<std::size_t>(full - groups.begin());
}

std::size_t cache_group_of_layer(const ModelConfig& config, std::int64_t layer) {
  const std::vector<ir::CacheGroup> groups = cache_groups(config);
  const auto group = std::ranges::find(groups, group_of(config, layer).name, &ir::CacheGroup::name);
  // A config with too many groups has already failed in declare_token_inputs(), but the graph is built to its end. The
  // minimum keeps the index valid until then.
  return std::min(static_cast<std::size_t>(group - groups.begin()), ir::kMaxCacheGroups - 1);
}

KvCache declare_kv_cache(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                         const std::string& prefix) {
  const std::int64_t kv_heads = local_heads(config, b.options()).kv_heads;
  const std::optional<GuestPlace>& guest = b.options().guest;
  const std::size_t index = guest ? guest->group : cache_group_of_layer(config, layer);
  const std::int64_t number = guest ? guest->first_layer + layer : layer;
  const ir::DType dtype = b.options().kv_cache_type();
  const ir::Type type{dtype,
                      {ir::page_symbol(index), b.options().page_size, kv_heads, cache_columns(dtype, config.head_dim)}};
  KvCache cache{.keys = b.graph.state(fmt::format("k_cache.{}", number), type),
                .values = b.graph.state(fmt::format("v_cache.{}", number), type),
                .slots = inputs.slots[index],
                .group = static_cast<std::int64_t>(index),
                .window = config.sliding_windows[static_cast<std::size_t>(layer)]};
  if (has_cache_scales(type.dtype))
    for (const std::string_view kind : {"k", "v"}) cache.scales.push_back(declare_scale(b, layer, prefix, kind));
  return cache;
}

void store_kv(LayerBuilder& b, const KvCache& cache, ir::ValueId keys, ir::ValueId values) {
  std::vector<ir::ValueId> operands{keys, values, cache.slots, cache.keys, cache.values};
  operands.insert(operands.end(), cache.scales.begin(), cache.scales.end());
  b.graph.op("kv_store", operands);
}

CacheScaleCounts count_cache_scales(std::span<const WeightSpec> weights) {
  CacheScaleCounts counts;
  for (const WeightSpec& weight : weights) {
    const std::string_view name = weight.name;
    if (!name.substr(std::min<std::size_t>(name.size(), 1)).starts_with(kScale)) continue;
    ++(weight.parts.empty() ? counts.ones : counts.read);
  }
  return counts;
}

}  // namespace tessera
