#include "tessera/model/layers/head.h"

#include <string>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

// Returns whether each rank has a slice of a table with `rows` rows. If the ranks cannot share the rows equally, each
// rank has the whole table.
bool divides(const LayerBuilder& b, std::int64_t rows) {
  return b.options().tp_size > 1 && rows % b.options().tp_size == 0;
}

// Returns the weight that contains the rows `slice` of a table. If the table is stored as a GGUF file's blocks, adds
// the attributes that describe the blocks to `attributes`.
Result<WeightSpec> table_weight(LayerBuilder& b, const EmbeddingTable& table, const TensorSlice& slice,
                                ir::Attributes& attributes) {
  constexpr std::string_view kSuffix = ".weight";
  const std::string module =
      table.tensor.ends_with(kSuffix) ? table.tensor.substr(0, table.tensor.size() - kSuffix.size()) : table.tensor;
  if (const std::optional<WeightFormat> blocks = b.blocks_of(module); blocks && !blocks->codes) {
    b.note_stored(module, *blocks);
    const LinearPart part{.tensor = module,
                          .matrix = table.tensor,
                          .tensor_rows = table.rows,
                          .tensor_cols = table.cols,
                          .slice = slice,
                          .rows = slice.size,
                          .cols = table.cols,
                          .format = *blocks};
    QuantisedWeights weights = TRY(quantised_weights(module, {&part, 1}));
    const ir::Attributes of_table = weights.format.attributes();
    attributes.insert(attributes.end(), of_table.begin(), of_table.end());
    attributes.emplace_back("dtype", std::string(ir::dtype_name(b.options().dtype)));
    return std::move(weights.weights[0]);
  }
  return WeightSpec{.name = table.tensor,
                    .type = {b.options().weight_type(), {ir::Dim(slice.size), ir::Dim(table.cols)}},
                    .parts = {{.tensor = table.tensor, .shape = {table.rows, table.cols}, .slice = slice}}};
}

// Returns the attribute "scale", by which the table's rows are multiplied; 1 if there is no such attribute.
double scale_of(const ir::Attributes& attributes) {
  for (const auto& [name, value] : attributes)
    if (name == "scale") return std::get<double>(value);
  return 1;
}

bool is_tied(const ModelConfig& config) { return config.tie_word_embeddings && config.num_labels == 0; }

std::string head_tensor(const LayerBuilder& b, const ModelConfig& config) {
  if (is_tied(config)) return b.tensor("embed_tokens");
  return config.num_labels > 0 ? "score" : "lm_head";
}

ir::ValueId capped_logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs, const std::string& name,
                          const LinearBlock& head) {
  const ir::ValueId wanted = b.graph.op("gather_rows", {inputs.hidden, inputs.wanted_rows});
  // The head of a classifier is not sliced, so every rank computes the logits of all labels.
  const ir::ValueId y = all_logits(b, name, wanted, head, config.num_labels == 0);
  return config.logit_softcap > 0 ? b.graph.op("softcap", {y}, {{"cap", config.logit_softcap}}) : y;
}

}  // namespace

ir::ValueId resolve_ids(LayerBuilder& b, const TokenInputs& inputs, const ir::Attributes& attributes) {
  return b.graph.op("resolve_ids", {inputs.ids, inputs.rows, inputs.last_ids}, attributes);
}

ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs) {
  return embed(b, config, inputs, resolve_ids(b, inputs));
}

ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, ir::ValueId ids) {
  ir::Attributes attributes;
  if (config.embedding_scale != 1) attributes.emplace_back("scale", config.embedding_scale);
  std::vector<ir::ValueId> given;
  if (takes_embeddings(b.options())) given = {inputs.embedding_rows, inputs.embeddings};
  return look_up(b, {b.tensor("embed_tokens.weight"), config.vocab_size, config.hidden_size}, ids, given,
                 std::move(attributes));
}

ir::ValueId look_up(LayerBuilder& b, const EmbeddingTable& table, ir::ValueId ids,
                    const std::vector<ir::ValueId>& operands, ir::Attributes attributes) {
  const bool sliced = divides(b, table.rows);
  const std::int64_t rows = sliced ? table.rows / b.options().tp_size : table.rows;
  const std::int64_t first = sliced ? rows * b.options().tp_rank : 0;
  if (sliced) {
    attributes.emplace_back("first_row", first);
    attributes.emplace_back("table_rows", table.rows);
  }
  const TensorSlice slice{.dim = 0, .begin = first, .size = rows};
  Result<WeightSpec> weight = table_weight(b, table, slice, attributes);
  if (!weight.ok()) {
    b.graph.fail(weight.status());
    return ids;
  }
  if (table.tensor == b.tensor("embed_tokens.weight"))
    b.note_adaptable({.weight = weight->name,
                      .embeds = true,
                      .factor = scale_of(attributes),
                      .cols = rows,
                      .first_col = first,
                      .modules = {{.name = b.tensor("embed_tokens"), .rows = table.cols, .cols = table.rows}},
                      .ranges = {{.module = 0, .first_row = 0, .rows = table.cols}}});
  std::vector<ir::ValueId> all{ids, b.add_weight(*std::move(weight))};
  all.insert(all.end(), operands.begin(), operands.end());
  const ir::ValueId y = b.graph.op("embedding", all, attributes);
  if (sliced) b.graph.op("all_reduce", {y});
  return y;
}

ir::ValueId with_deepstack(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                           ir::ValueId branch) {
  if (!config.images || layer >= config.images->deepstack_levels) return branch;
  return b.graph.op("add_given", {branch, inputs.embedding_rows, inputs.embeddings}, {{"part", layer + 1}});
}

ir::ValueId logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs, bool quantise) {
  const std::string tensor = head_tensor(b, config);
  const Quantisable as_stored = is_tied(config) ? Quantisable::kNo : Quantisable::kIfStored;
  return capped_logits(
      b, config, inputs, quantise ? "lm_head" : tensor,
      {.tensor = tensor, .rows = config.num_logits(), .quantisable = quantise ? Quantisable::kYes : as_stored});
}

ir::ValueId draft_logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs, std::int64_t ids) {
  return capped_logits(b, config, inputs, "draft_head",
                       {.tensor = head_tensor(b, config),
                        .rows = ids,
                        .tensor_rows = ids == config.num_logits() ? 0 : config.num_logits()});
}

ir::ValueId all_logits(LayerBuilder& b, const std::string& name, ir::ValueId x, const LinearBlock& head,
                       bool may_slice) {
  const bool sliced = may_slice && divides(b, head.rows);
  ir::ValueId y = b.linear(name, x, {head}, false, sliced ? Parallel::kColumn : Parallel::kNone);
  if (sliced) y = b.graph.op("all_gather", {y}, {{"ranks", std::int64_t{b.options().tp_size}}});
  return b.options().dtype == ir::DType::kFloat32 ? y : b.graph.op("cast", {y}, {{"dtype", std::string("f32")}});
}

}  // namespace tessera
