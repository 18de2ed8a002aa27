#include "tessera/model/layers.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

ir::ValueId LayerBuilder::add_weight(WeightSpec spec) {
  const ir::ValueId value = graph.weight(spec.name, spec.type);
  const bool known =
      std::any_of(weights_.begin(), weights_.end(), [&](const WeightSpec& w) { return w.name == spec.name; });
  if (!known) weights_.push_back(std::move(spec));
  return value;
}

ir::ValueId LayerBuilder::norm_weight(const std::string& tensor, std::int64_t size) {
  return add_weight({.name = tensor,
                     .type = {options_.dtype, {ir::Dim(size)}},
                     .parts = {{.tensor = tensor, .shape = {size}, .slice = {}}},
                     .constant = {},
                     .dummy_init = WeightSpec::Init::kOnes});
}

ir::ValueId LayerBuilder::matrix(const std::string& tensor, std::int64_t rows, std::int64_t cols) {
  return add_weight({.name = tensor,
                     .type = {options_.dtype, {ir::Dim(rows), ir::Dim(cols)}},
                     .parts = {{.tensor = tensor, .shape = {rows, cols}, .slice = {}}},
                     .constant = {}});
}

ir::ValueId LayerBuilder::constant(const std::string& name, std::vector<float> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return add_weight(
      {.name = name, .type = {ir::DType::kFloat32, {ir::Dim(size)}}, .parts = {}, .constant = std::move(values)});
}

ir::ValueId LayerBuilder::linear(const std::string& name, ir::ValueId x, std::int64_t in,
                                 const std::vector<LinearBlock>& blocks, bool bias, Parallel parallel) {
  const std::int64_t ranks = parallel == Parallel::kNone ? 1 : options_.tp_size;
  const std::int64_t rank = parallel == Parallel::kNone ? 0 : options_.tp_rank;
  WeightSpec weight{.name = name + ".weight", .type = {}, .parts = {}, .constant = {}};
  WeightSpec bias_vector{.name = name + ".bias", .type = {}, .parts = {}, .constant = {}};

  std::int64_t local_rows = 0;
  const std::int64_t local_in = parallel == Parallel::kRow ? in / ranks : in;
  for (const LinearBlock& block : blocks) {
    TensorSlice slice;
    std::int64_t rows = block.rows;
    if (parallel == Parallel::kColumn) {
      const std::int64_t shares = block.replicated_blocks > 0 ? std::min(ranks, block.replicated_blocks) : ranks;
      if (block.rows % shares != 0 || ranks % shares != 0) {
        graph.fail(invalid_argument(fmt::format("{}: {} rows in {} shares cannot be divided among {} ranks",
                                                block.tensor, block.rows, shares, ranks)));
        return x;
      }
      rows = block.rows / shares;
      slice = {.dim = 0, .begin = rank / (ranks / shares) * rows, .size = rows};
    } else if (parallel == Parallel::kRow) {
      if (in % ranks != 0) {
        graph.fail(
            invalid_argument(fmt::format("{}: {} columns cannot be divided among {} ranks", block.tensor, in, ranks)));
        return x;
      }
      slice = {.dim = 1, .begin = rank * local_in, .size = local_in};
    }
    weight.parts.push_back({.tensor = block.tensor + ".weight", .shape = {block.rows, in}, .slice = slice});
    bias_vector.parts.push_back({.tensor = block.tensor + ".bias",
                                 .shape = {block.rows},
                                 .slice = parallel == Parallel::kRow ? TensorSlice{} : slice});
    local_rows += rows;
  }
  weight.type = {options_.dtype, {ir::Dim(local_rows), ir::Dim(local_in)}};
  bias_vector.type = {options_.dtype, {ir::Dim(local_rows)}};

  std::vector<ir::ValueId> operands = {x, add_weight(std::move(weight))};
  // Of partial sums only one may carry the bias.
  const bool adds_bias = bias && (parallel != Parallel::kRow || rank == 0);
  if (adds_bias) operands.push_back(add_weight(std::move(bias_vector)));
  const ir::ValueId y = graph.op("linear", operands, {{"bias", adds_bias}});
  if (parallel == Parallel::kRow && ranks > 1) graph.op("all_reduce", {y});
  return y;
}

}  // namespace tessera
