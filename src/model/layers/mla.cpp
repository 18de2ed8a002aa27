#include "tessera/model/layers/mla.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/model/layers/cache.h"

namespace tessera {
namespace {

using ir::ValueId;

// Of the norms of latents; no field of config.json changes it.
constexpr double kLatentNormEps = 1e-6;

// What a layer's attention reads: queries [T, local heads · (qk_nope_head_dim + qk_rope_head_dim)], and the token's
// latent beside its key that is rotated [T, kv_lora_rank + qk_rope_head_dim].
struct Projections {
  ValueId q;
  ValueId kv;
};

Projections project(LayerBuilder& b, const ModelConfig& config, ValueId x, const std::string& p) {
  const MlaConfig& mla = *config.mla;
  const LinearBlock kv{.tensor = p + "kv_a_proj_with_mqa", .rows = mla.kv_lora_rank + mla.qk_rope_head_dim};
  const std::int64_t q_rows = config.num_attention_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  if (mla.q_lora_rank == 0)
    return {.q = b.linear(p + "q_proj", x, {{.tensor = p + "q_proj", .rows = q_rows}}, false, Parallel::kColumn),
            .kv = b.linear(kv.tensor, x, {kv}, config.qkv_bias, Parallel::kNone)};

  const ValueId both = b.linear(p + "qkv_a_proj", x, {{.tensor = p + "q_a_proj", .rows = mla.q_lora_rank}, kv},
                                config.qkv_bias, Parallel::kNone);
  const std::vector<ValueId> parts =
      b.graph.multi_op("split", {both}, {{"sizes", std::vector<std::int64_t>{mla.q_lora_rank, kv.rows}}});
  if (!b.graph.ok()) return {.q = x, .kv = x};
  const ValueId weight = b.norm_weight(p + "q_a_layernorm.weight", mla.q_lora_rank);
  const ValueId latent = b.graph.op("rms_norm", {parts[0], weight}, {{"eps", kLatentNormEps}});
  return {.q = b.linear(p + "q_b_proj", latent, {{.tensor = p + "q_b_proj", .rows = q_rows}}, false, Parallel::kColumn),
          .kv = parts[1]};
}

// The matrices of this rank's heads: rows of kv_b_proj [heads · (qk_nope_head_dim + v_head_dim), kv_lora_rank].
struct Absorbed {
  ValueId keys;    // [local heads, qk_nope_head_dim, kv_lora_rank], transposed: a query into the latents' space
  ValueId values;  // [local heads, v_head_dim, kv_lora_rank]: an output out of it
};

Absorbed absorbed_weights(LayerBuilder& b, const ModelConfig& config, const std::string& p) {
  const MlaConfig& mla = *config.mla;
  const std::int64_t local = local_heads(config, b.options()).heads;
  const std::int64_t head_rows = mla.qk_nope_head_dim + mla.v_head_dim;
  // `size` rows of each head from its row `first` on.
  const auto rows_of_heads = [&](const char* name, std::int64_t first, std::int64_t size) {
    WeightSpec spec{.name = p + name, .type = {b.options().weight_type(), {local, size, mla.kv_lora_rank}}};
    for (std::int64_t h = 0; h < local; ++h)
      spec.parts.push_back(
          {.tensor = p + "kv_b_proj.weight",
           .shape = {config.num_attention_heads * head_rows, mla.kv_lora_rank},
           .slice = {.dim = 0, .begin = (b.options().tp_rank * local + h) * head_rows + first, .size = size}});
    return b.add_weight(std::move(spec));
  };
  return {.keys = rows_of_heads("kv_b_proj.keys", 0, mla.qk_nope_head_dim),
          .values = rows_of_heads("kv_b_proj.values", mla.qk_nope_head_dim, mla.v_head_dim)};
}

// Memory for rows of this rank's heads, [T, local heads · columns].
ValueId head_rows(LayerBuilder& b, const ModelConfig& config, std::int64_t columns) {
  const std::int64_t local = local_heads(config, b.options()).heads;
  return b.graph.op(
      "empty", {},
      {{"dtype", std::string(ir::dtype_name(b.options().dtype))}, {"shape", fmt::format("T, {}", local * columns)}});
}

}  // namespace

std::vector<ir::CacheGroup> latent_groups(const ModelConfig& config) {
  ir::CacheGroup group{.name = "latent", .kind = ir::CacheGroup::Kind::kLatent};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) group.layers.push_back(layer);
  return {group};
}

double latent_attention_scale(const ModelConfig& config) {
  const auto head_dim = static_cast<double>(config.mla->qk_nope_head_dim + config.mla->qk_rope_head_dim);
  const double scale = 1.0 / std::sqrt(head_dim);
  const RopeConfig& rope = config.rope;
  if (rope.type != RopeType::kYarn || rope.factor <= 1.0) return scale;
  const double mscale = 0.1 * rope.mscale_all_dim.value_or(0.0) * std::log(rope.factor) + 1.0;
  return scale * mscale * mscale;
}

ValueId latent_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ValueId x,
                         const std::string& prefix) {
  const ModelConfig& config = in.config;
  const MlaConfig& mla = *config.mla;
  const std::int64_t width = mla.kv_lora_rank + mla.qk_rope_head_dim;
  const Projections projected = project(b, config, x, prefix);
  const Absorbed absorbed = absorbed_weights(b, config, prefix);
  const ValueId cache =
      b.graph.state(fmt::format("latent_cache.{}", layer),
                    {b.options().kv_cache_type(), {ir::page_symbol(0), b.options().page_size, width}});

  const ValueId query = head_rows(b, config, width);
  b.graph.op("latent_store",
             {projected.q, projected.kv, b.norm_weight(prefix + "kv_a_layernorm.weight", mla.kv_lora_rank), in.rope,
              in.tokens.slots[0], cache, query},
             {{"eps", kLatentNormEps}, {"interleaved", mla.interleaved}});
  b.graph.op("head_linear", {projected.q, absorbed.keys, query}, {{"transposed", true}});

  const ValueId out = head_rows(b, config, mla.v_head_dim);
  b.graph.op("latent_attention", {query, cache, projected.q, absorbed.keys, absorbed.values, out},
             {{"group", std::int64_t{0}}, {"scale", latent_attention_scale(config)}});
  return out;
}

}  // namespace tessera
