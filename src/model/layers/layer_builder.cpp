#include "tessera/model/layers/layer_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

Result<TensorSlice> rank_rows(const LinearBlock& block, int rank, int ranks) {
  const std::int64_t shares = block.heads > 0 ? std::min<std::int64_t>(ranks, block.heads) : ranks;
  if (block.rows % shares != 0 || ranks % shares != 0) {
    return invalid_argument(fmt::format("{}: {} rows in {} shares cannot be divided among {} ranks", block.tensor,
                                        block.rows, shares, ranks));
  }
  const std::int64_t rows = block.rows / shares;
  return TensorSlice{.dim = 0, .begin = block.first_row + rank / (ranks / shares) * rows, .size = rows};
}

ir::ValueId LayerBuilder::add_weight(WeightSpec spec) {
  const ir::ValueId value = graph.weight(spec.name, spec.type);
  const bool known =
      std::any_of(weights_.begin(), weights_.end(), [&](const WeightSpec& w) { return w.name == spec.name; });
  if (!known) weights_.push_back(std::move(spec));
  return value;
}

ir::ValueId LayerBuilder::norm_weight(const std::string& tensor, std::int64_t size) {
  return norm_weight(tensor, size, {TensorSlice{}});
}

ir::ValueId LayerBuilder::norm_weight(const std::string& tensor, std::int64_t size,
                                      const std::vector<TensorSlice>& parts) {
  WeightSpec spec{.name = tensor, .dummy_init = WeightSpec::Init::kOnes};
  std::int64_t elements = 0;
  for (const TensorSlice& part : parts) {
    spec.parts.push_back({.tensor = tensor, .shape = {size}, .slice = part});
    elements += part.size < 0 ? size : part.size;
  }
  spec.type = {options_.weight_type(), {ir::Dim(elements)}};
  return add_weight(std::move(spec));
}

ir::ValueId LayerBuilder::vector(const std::string& tensor, std::int64_t size, ir::DType dtype,
                                 const TensorSlice& slice) {
  return add_weight({.name = tensor,
                     .type = {dtype, {ir::Dim(slice.size < 0 ? size : slice.size)}},
                     .parts = {{.tensor = tensor, .shape = {size}, .slice = slice}}});
}

ir::ValueId LayerBuilder::matrix(const std::string& tensor, std::int64_t rows, std::int64_t cols) {
  return add_weight({.name = tensor,
                     .type = {options_.weight_type(), {ir::Dim(rows), ir::Dim(cols)}},
                     .parts = {{.tensor = tensor, .shape = {rows, cols}}}});
}

ir::ValueId LayerBuilder::constant(const std::string& name, std::vector<float> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return add_weight({.name = name, .type = {ir::DType::kFloat32, {ir::Dim(size)}}, .constant = std::move(values)});
}

ir::ValueId LayerBuilder::ones(std::int64_t size) {
  return add_weight({.name = fmt::format("ones.{}", size),
                     .type = {options_.weight_type(), {ir::Dim(size)}},
                     .constant = std::vector<float>(static_cast<std::size_t>(size), 1.0F)});
}

ir::ValueId LayerBuilder::linear(const std::string& name, ir::ValueId x, const std::vector<LinearBlock>& blocks,
                                 bool bias, Parallel parallel, std::optional<ir::ValueId> residual) {
  const int ranks = parallel == Parallel::kNone ? 1 : options_.tp_size;
  const int rank = parallel == Parallel::kNone ? 0 : options_.tp_rank;
  if (!graph.ok()) return x;
  const std::int64_t local_in = graph.type(x).shape.back().constant().value_or(0);
  const bool by_columns = parallel == Parallel::kRow || parallel == Parallel::kRowPart;
  const std::int64_t in = by_columns ? local_in * ranks : local_in;

  WeightSpec weight{.name = name + ".weight"};
  WeightSpec bias_vector{.name = name + ".bias"};
  std::int64_t local_rows = 0;
  for (const LinearBlock& block : blocks) {
    const Result<TensorSlice> rows = rank_rows(block, by_columns ? 0 : rank, by_columns ? 1 : ranks);
    if (!rows.ok()) {
      graph.fail(rows.status());
      return x;
    }
    const std::int64_t tensor_rows = block.tensor_rows > 0 ? block.tensor_rows : block.rows;
    const TensorSlice slice = by_columns ? TensorSlice{.dim = 1, .begin = rank * local_in, .size = local_in} : *rows;
    const std::int64_t tensor_cols = block.cols > 0 ? block.cols : in;
    const std::int64_t block_rows = std::max(block.padded_rows, rows->size);
    const bool padded = block_rows > rows->size || tensor_cols < in;
    if (padded && parallel != Parallel::kNone) {
      graph.fail(internal_error(fmt::format("{}: zeros behind a block that ranks share out", block.tensor)));
      return x;
    }
    weight.parts.push_back({.tensor = block.tensor + ".weight",
                            .shape = {tensor_rows, tensor_cols},
                            .slice = slice,
                            .storage = block.storage});
    bias_vector.parts.push_back({.tensor = block.tensor + ".bias", .shape = {tensor_rows}, .slice = *rows});
    if (padded) {
      weight.parts.back().padded = {block_rows, in};
      bias_vector.parts.back().padded = {block_rows};
    }
    local_rows += block_rows;
  }
  weight.type = {options_.weight_type(), {ir::Dim(local_rows), ir::Dim(local_in)}};
  bias_vector.type = {options_.weight_type(), {ir::Dim(local_rows)}};

  std::vector<ir::ValueId> operands = {x, add_weight(std::move(weight))};
  // Only one of the partial sums may include the bias.
  const bool adds_bias = bias && (!by_columns || rank == 0);
  if (adds_bias) operands.push_back(add_weight(std::move(bias_vector)));
  ir::Attributes attributes{{"bias", adds_bias}};
  if (residual) {
    operands.push_back(*residual);
    attributes.emplace_back("residual", true);
  }
  const ir::ValueId y = graph.op("linear", operands, attributes);
  if (parallel == Parallel::kRow && ranks > 1) graph.op("all_reduce", {y});
  return y;
}

ir::ValueId LayerBuilder::rows_of_all_ranks(ir::ValueId x) {
  if (options_.dp_size == 1) return x;
  for (const auto& [own, all] : gathered_)
    if (own == x) return all;
  gathered_.emplace_back(x, graph.op("all_gather_rows", {x}, {{"ranks", std::int64_t{options_.dp_size}}}));
  return gathered_.back().second;
}

ir::ValueId LayerBuilder::sums_of_own_rows(ir::ValueId y) {
  if (options_.dp_size == 1) return y;
  return graph.op("reduce_scatter", {y}, {{"ranks", std::int64_t{options_.dp_size}}});
}

std::string LayerBuilder::begin_layer(std::int64_t layer) {
  graph.scope(fmt::format("layers.{}", layer));
  num_layers_ = layer + 1;
  layer_starts_.push_back(graph.graph().nodes.size());
  return tensor(fmt::format("layers.{}.", layer));
}

void LayerBuilder::describe_layer(LayerInfo info) {
  layers_.resize(static_cast<std::size_t>(num_layers_));
  layers_.back() = std::move(info);
}

std::vector<LayerInfo> LayerBuilder::take_layers() {
  if (!layers_.empty()) layers_.resize(static_cast<std::size_t>(num_layers_));
  return std::move(layers_);
}

}  // namespace tessera
