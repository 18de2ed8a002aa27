#include "tessera/model/layers/attention.h"

#include <cmath>

#include "tessera/model/layers/norm.h"

namespace tessera {
namespace {

struct Rotation {
  const RopeConfig& rope;
  std::int64_t head_dim = 0;
  std::string name;  // the name of the frequencies in the graph
};

// Adds a rotary_table. `attributes` are those that only this table has.
ir::ValueId add_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, const Rotation& rotation,
                      ir::Attributes attributes) {
  const RopeConfig& rope = rotation.rope;
  const std::int64_t asked = b.options().context_length;
  const std::int64_t context_length = asked > 0 ? asked : config.max_position_embeddings;
  const ir::ValueId inv_freq = b.constant(rotation.name, compute_inv_freq(rope, rotation.head_dim, context_length));
  attributes.reserve(attributes.size() + 3);  // avoids a false warning of g++ 12 about a write past the end
  attributes.emplace_back("scale", static_cast<double>(attention_scaling(rope)));
  if (!rope.sections.empty()) {
    attributes.emplace_back("sections", rope.sections);
    if (rope.interleaved_sections) attributes.emplace_back("interleaved", true);
  }
  return b.graph.op("rotary_table", {inputs.positions, inv_freq}, attributes);
}

// Rotates queries and keys by tables of their own, and stores keys and values. Returns the queries.
ir::ValueId rotate_apart(LayerBuilder& b, const AttentionInputs& in, const KvCache& cache, ir::ValueId qkv) {
  const LocalHeads local = local_heads(in.config, b.options());
  const std::int64_t head_dim = in.config.head_dim;
  const std::vector<std::int64_t> sizes{local.heads * head_dim, local.kv_heads * head_dim, local.kv_heads * head_dim};
  const std::vector<ir::ValueId> parts = b.graph.multi_op("split", {qkv}, {{"sizes", sizes}});
  if (!b.graph.ok()) return qkv;
  store_kv(b, cache, b.graph.op("rotary", {parts[1], in.rope}, {{"head_dim", head_dim}}), parts[2]);
  return b.graph.op("rotary", {parts[0], *in.query_rope}, {{"head_dim", head_dim}});
}

}  // namespace

ir::ValueId rope_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs) {
  return rope_table(b, config, inputs, config.rope, config.head_dim, "rope.inv_freq");
}

ir::ValueId rope_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, const RopeConfig& rope,
                       std::int64_t head_dim, const std::string& name) {
  return add_table(b, config, inputs, {rope, head_dim, name}, {});
}

std::optional<ir::ValueId> query_rope_table(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs) {
  if (config.rope.query_growth == 0) return std::nullopt;
  return add_table(
      b, config, inputs, {config.rope, config.head_dim, "rope.query_inv_freq"},
      {{"growth", config.rope.query_growth}, {"growth_length", config.rope.original_max_position_embeddings}});
}

std::vector<LinearBlock> qkv_blocks(const ModelConfig& config, const std::string& prefix) {
  return {{.tensor = prefix + "q_proj", .rows = config.query_size()},
          {.tensor = prefix + "k_proj", .rows = config.key_value_size(), .heads = config.num_key_value_heads},
          {.tensor = prefix + "v_proj", .rows = config.key_value_size(), .heads = config.num_key_value_heads}};
}

std::vector<LinearBlock> fused_qkv_blocks(const ModelConfig& config, const std::string& prefix) {
  std::vector<LinearBlock> blocks = qkv_blocks(config, prefix);
  std::int64_t row = 0;
  for (LinearBlock& block : blocks) {
    block.tensor = prefix + "qkv_proj";
    block.first_row = row;
    block.tensor_rows = config.query_size() + 2 * config.key_value_size();
    row += block.rows;
  }
  return blocks;
}

ir::ValueId attend(LayerBuilder& b, const ModelConfig& config, const KvCache& cache, ir::ValueId q,
                   std::optional<ir::ValueId> sinks) {
  const ir::ValueId out = b.graph.op("empty_like", {q});
  std::vector<ir::ValueId> operands{q, cache.keys, cache.values, out};
  if (sinks) operands.push_back(*sinks);
  operands.insert(operands.end(), cache.scales.begin(), cache.scales.end());
  const double scale = config.attention_scale.value_or(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  ir::Attributes attributes{{"group", cache.group}, {"scale", scale}, {"window", cache.window}};
  if (config.attention_softcap > 0) attributes.emplace_back("softcap", config.attention_softcap);
  b.graph.op("attention", operands, attributes);
  return out;
}

ir::ValueId rope_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId qkv,
                           const std::string& prefix) {
  const KvCache cache = declare_kv_cache(b, in.config, in.tokens, layer, prefix);
  if (in.query_rope) return attend(b, in.config, cache, rotate_apart(b, in, cache, qkv));
  std::vector<ir::ValueId> operands{qkv, in.rope, cache.slots, cache.keys, cache.values};
  ir::Attributes attributes{{"heads", local_heads(in.config, b.options()).heads}};
  if (in.config.qk_norm == QkNorm::kHead) {
    attributes.emplace_back("qk_norm", true);
    for (auto& attribute : norm_attributes(in.config)) attributes.push_back(std::move(attribute));
    operands.push_back(b.norm_weight(prefix + "q_norm.weight", in.config.head_dim));
    operands.push_back(b.norm_weight(prefix + "k_norm.weight", in.config.head_dim));
  }
  operands.insert(operands.end(), cache.scales.begin(), cache.scales.end());
  const ir::ValueId q = b.graph.op("qkv_rope_store", operands, attributes);
  if (!in.config.attention_sinks) return attend(b, in.config, cache, q);
  const std::int64_t heads = local_heads(in.config, b.options()).heads;
  return attend(b, in.config, cache, q,
                b.vector(prefix + "sinks", in.config.num_attention_heads, ir::DType::kFloat32,
                         {.dim = 0, .begin = b.options().tp_rank * heads, .size = heads}));
}

ir::ValueId gated_rope_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId x,
                                 const std::string& prefix) {
  const ModelConfig& config = in.config;
  const LocalHeads local = local_heads(config, b.options());
  std::vector<LinearBlock> qkv;
  std::vector<LinearBlock> gates;
  for (std::int64_t head = 0; head < local.heads; ++head) {
    const std::int64_t first = (b.options().tp_rank * local.heads + head) * 2 * config.head_dim;
    LinearBlock block{.tensor = prefix + "q_proj",
                      .rows = config.head_dim,
                      .first_row = first,
                      .tensor_rows = 2 * config.query_size()};
    qkv.push_back(block);
    block.first_row += config.head_dim;
    gates.push_back(std::move(block));
  }
  const std::vector<LinearBlock> all = qkv_blocks(config, prefix);
  for (const std::size_t i : {1, 2}) {
    const Result<TensorSlice> rows = rank_rows(all[i], b.options().tp_rank, b.options().tp_size);
    if (!rows.ok()) {
      b.graph.fail(rows.status());
      return x;
    }
    qkv.push_back({.tensor = all[i].tensor, .rows = rows->size, .first_row = rows->begin, .tensor_rows = all[i].rows});
  }
  // The blocks already contain only this rank's rows, so the linears must not divide them among ranks again (kNone).
  const ir::ValueId gate = b.linear(prefix + "gate_proj", x, gates, config.qkv_bias, Parallel::kNone);
  const ir::ValueId out =
      rope_attention(b, in, layer, b.linear(prefix + "qkv_proj", x, qkv, config.qkv_bias, Parallel::kNone), prefix);
  return b.graph.op("sigmoid_gate", {out, gate});
}

ir::ValueId output_projection(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const std::string& prefix) {
  return b.linear(prefix + "o_proj", x, {{.tensor = prefix + "o_proj", .rows = config.hidden_size}}, config.o_bias,
                  Parallel::kRow);
}

ir::ValueId self_attention(LayerBuilder& b, const AttentionInputs& in, std::int64_t layer, ir::ValueId x,
                           const std::vector<LinearBlock>& qkv, const std::string& prefix) {
  const ir::ValueId joint = b.linear(prefix + "qkv_proj", x, qkv, in.config.qkv_bias, Parallel::kColumn);
  return output_projection(b, in.config, rope_attention(b, in, layer, joint, prefix), prefix);
}

}  // namespace tessera
