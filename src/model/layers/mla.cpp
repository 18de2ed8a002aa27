#include "tessera/model/layers/mla.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/model/layers/cache.h"

namespace tessera {
namespace {

using ir::ValueId;

// The eps of the norms of latent vectors. It is a constant, because config.json has no field for it.
constexpr double kLatentNormEps = 1e-6;

// Returns uninitialised memory for T rows of `columns` values.
ValueId rows_of(LayerBuilder& b, std::int64_t columns) {
  return b.graph.op(
      "empty", {},
      {{"dtype", std::string(ir::dtype_name(b.options().dtype))}, {"shape", fmt::format("T, {}", columns)}});
}

// Stores the tokens' latent vectors and rotated keys in the cache. Returns a value with one row for each token. Each
// row begins with the token's queries, which take local heads · (qk_nope_head_dim + qk_rope_head_dim) columns. If
// queries have no latent vector, one matmul computes queries, latent vectors and rotated keys, and the returned rows
// contain all three. With config.qkv_bias two matmuls are needed, because latent vectors and rotated keys then have
// biases, but queries have none.
ValueId queries_and_store(LayerBuilder& b, const AttentionInputs& in, ValueId cache, ValueId x, const std::string& p) {
  const ModelConfig& config = in.config;
  const MlaConfig& mla = *config.mla;
  const LinearBlock kv{.tensor = p + "kv_a_proj_with_mqa", .rows = mla.kv_lora_rank + mla.qk_rope_head_dim};
  const std::int64_t head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  const std::int64_t q_rows = config.num_attention_heads * head_dim;
  const auto store = [&](ValueId latents, std::vector<ValueId> q) {
    std::vector<ValueId> operands{latents, b.norm_weight(p + "kv_a_layernorm.weight", mla.kv_lora_rank), in.rope,
                                  in.tokens.slots[0], cache};
    operands.insert(operands.end(), q.begin(), q.end());
    b.graph.op("latent_store", operands, {{"eps", kLatentNormEps}, {"interleaved", mla.interleaved}});
  };
  if (mla.q_lora_rank > 0) {
    const ValueId both = b.linear(p + "qkv_a_proj", x, {{.tensor = p + "q_a_proj", .rows = mla.q_lora_rank}, kv},
                                  config.qkv_bias, Parallel::kNone);
    const ValueId latent = rows_of(b, mla.q_lora_rank);
    store(both, {b.norm_weight(p + "q_a_layernorm.weight", mla.q_lora_rank), latent});
    return b.linear(p + "q_b_proj", latent, {{.tensor = p + "q_b_proj", .rows = q_rows}}, false, Parallel::kColumn);
  }
  if (config.qkv_bias) {
    store(b.linear(kv.tensor, x, {kv}, true, Parallel::kNone), {});
    return b.linear(p + "q_proj", x, {{.tensor = p + "q_proj", .rows = q_rows}}, false, Parallel::kColumn);
  }
  const std::int64_t local_rows = local_heads(config, b.options()).heads * head_dim;
  const LinearBlock q{
      .tensor = p + "q_proj", .rows = local_rows, .first_row = b.options().tp_rank * local_rows, .tensor_rows = q_rows};
  const ValueId both = b.linear(p + "q_kv_a_proj", x, {q, kv}, false, Parallel::kNone);
  store(both, {});
  return both;
}

// The rows of kv_b_proj [heads · (qk_nope_head_dim + v_head_dim), kv_lora_rank] for this rank's heads, as two weights.
struct Absorbed {
  // [local heads, qk_nope_head_dim, kv_lora_rank]: projects a query into the latent space
  ValueId keys;
  ValueId values;  // [local heads, v_head_dim, kv_lora_rank]: projects an output out of the latent space
};

Absorbed absorbed_weights(LayerBuilder& b, const ModelConfig& config, const std::string& p) {
  const MlaConfig& mla = *config.mla;
  const std::int64_t local = local_heads(config, b.options()).heads;
  const std::int64_t head_rows = mla.qk_nope_head_dim + mla.v_head_dim;
  const std::int64_t rows = config.num_attention_heads * head_rows;
  const Result<Storage> storage =
      b.read_as_numbers(p + "kv_b_proj", rows, mla.kv_lora_rank, "latent attention multiplies by it for each head");
  if (!storage.ok()) {
    b.graph.fail(storage.status());
    return {};
  }
  // Adds a weight that contains `size` rows of each head, beginning with the head's row `first`.
  const auto rows_of_heads = [&](const char* name, std::int64_t first, std::int64_t size) {
    WeightSpec spec{.name = p + name, .type = {b.options().weight_type(), {local, size, mla.kv_lora_rank}}};
    for (std::int64_t h = 0; h < local; ++h)
      spec.parts.push_back(
          {.tensor = p + "kv_b_proj.weight",
           .shape = {rows, mla.kv_lora_rank},
           .slice = {.dim = 0, .begin = (b.options().tp_rank * local + h) * head_rows + first, .size = size},
           .storage = *storage});
    return b.add_weight(std::move(spec));
  };
  return {.keys = rows_of_heads("kv_b_proj.keys", 0, mla.qk_nope_head_dim),
          .values = rows_of_heads("kv_b_proj.values", mla.qk_nope_head_dim, mla.v_head_dim)};
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
  const ValueId cache =
      b.graph.state(fmt::format("latent_cache.{}", layer),
                    {b.options().kv_cache_type(),
                     {ir::page_symbol(0), b.options().page_size, mla.kv_lora_rank + mla.qk_rope_head_dim}});
  const ValueId q = queries_and_store(b, in, cache, x, prefix);
  const Absorbed absorbed = absorbed_weights(b, config, prefix);
  const ValueId out = rows_of(b, local_heads(config, b.options()).heads * mla.v_head_dim);
  b.graph.op("latent_attention", {q, in.rope, cache, absorbed.keys, absorbed.values, out},
             {{"group", std::int64_t{0}}, {"scale", latent_attention_scale(config)}, {"interleaved", mla.interleaved}});
  return out;
}

}  // namespace tessera
