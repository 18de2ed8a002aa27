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

Result<std::vector<LinearPart>> LayerBuilder::parts_of(const std::vector<LinearBlock>& blocks, std::int64_t local_in,
                                                       Parallel parallel) {
  const bool alone = parallel == Parallel::kNone;
  const int ranks = alone ? 1 : options_.tp_size;
  const int rank = alone ? 0 : options_.tp_rank;
  const bool by_columns = parallel == Parallel::kRow || parallel == Parallel::kRowPart;
  const std::int64_t in = by_columns ? local_in * ranks : local_in;
  std::vector<LinearPart> parts;
  for (const LinearBlock& block : blocks) {
    const TensorSlice rows = TRY(rank_rows(block, by_columns ? 0 : rank, by_columns ? 1 : ranks));
    const std::int64_t block_rows = std::max(block.padded_rows, rows.size);
    LinearPart part{.tensor = block.tensor,
                    .tensor_rows = block.tensor_rows > 0 ? block.tensor_rows : block.rows,
                    .tensor_cols = block.cols > 0 ? block.cols : in,
                    .slice = by_columns ? TensorSlice{.dim = 1, .begin = rank * local_in, .size = local_in} : rows,
                    .bias_slice = rows,
                    .rows = block_rows,
                    .cols = local_in,
                    .padded = block_rows > rows.size || (block.cols > 0 && block.cols < in),
                    .storage = block.storage};
    if (part.padded && !alone)
      return internal_error(fmt::format("{}: zeros behind a block that ranks share out", block.tensor));
    part.format = TRY(format_of_block(block, part.tensor_cols));
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<WeightFormat> LayerBuilder::format_of_block(const LinearBlock& block, std::int64_t cols) {
  if (!std::holds_alternative<PlainStorage>(block.storage)) return WeightFormat();
  if (block.quantisable == Quantisable::kNo) {
    const std::optional<WeightFormat> blocks = blocks_of(block.tensor);
    if (!blocks || blocks->codes) return WeightFormat();
    note_stored(block.tensor, *blocks);
    return *blocks;
  }
  WeightFormat format = TRY(format_of(block.tensor));
  note_stored(block.tensor, format);
  if (!format.is_unquantised()) return format;
  if (block.quantisable == Quantisable::kYes) return format_at_start(block.tensor, cols);
  leave_at_start(block.tensor, "published checkpoints do not quantise heads, routers and gates");
  return format;
}

std::optional<WeightFormat> LayerBuilder::blocks_of(const std::string& module) const {
  if (!options_.stored_blocks) return std::nullopt;
  const std::optional<BlockType> type = options_.stored_blocks(module + ".weight");
  if (!type) return std::nullopt;
  return WeightFormat{
      .values = WeightFormat::Values::kBlocks,
      .spelling = WeightFormat::Spelling::kBlocks,
      .inputs = options_.round_block_inputs ? WeightFormat::Inputs::kBlock : WeightFormat::Inputs::kPlain,
      .blocks = *type,
      .codes = options_.block_codes};
}

Result<WeightFormat> LayerBuilder::format_of(const std::string& module) const {
  if (std::optional<WeightFormat> blocks = blocks_of(module)) return *blocks;
  return formats_.of(module, options_.stored_type);
}

void LayerBuilder::note_stored(const std::string& module, const WeightFormat& format) {
  const bool counts = !formats_.method().empty() || !format.is_unquantised();
  if (counts && noted_stored_.insert(module).second)
    stored_.push_back({.module = module, .format = describe(format), .unquantised = format.is_unquantised()});
}

bool LayerBuilder::has_separate_experts(const std::string& prefix, const std::string& matrix) const {
  const std::string first = fmt::format("{}0.{}", prefix, matrix);
  if (options_.stored_type) return has_matrix(first, options_.stored_type);
  const Result<WeightFormat> format = format_of(first);
  return format.ok() && !format->is_unquantised();
}

WeightFormat LayerBuilder::format_at_start(const std::string& module, std::int64_t cols) {
  const std::optional<StartFormat> at_start = formats_.at_start();
  if (!at_start) return {};
  const std::optional<WeightFormat> format = tessera::format_at_start(*at_start, cols);
  if (!format) {
    leave_at_start(module,
                   fmt::format("their number of columns, {}, is not a multiple of {}", cols, start_cols(*at_start)));
    return {};
  }
  note_at_start({.module = module, .format = describe(*format)});
  return *format;
}

void LayerBuilder::leave_at_start(const std::string& module, const std::string& reason) {
  if (quantises_at_start()) note_at_start({.module = module, .reason = reason});
}

void LayerBuilder::note_at_start(WeightAtStart weight) {
  if (noted_at_start_.insert(weight.module).second) at_start_.push_back(std::move(weight));
}

ir::ValueId LayerBuilder::linear_of(const std::string& name, ir::ValueId x, std::span<const LinearPart> parts,
                                    bool bias, std::optional<ir::ValueId> residual) {
  std::vector<ir::ValueId> operands = {x};
  ir::Attributes attributes{{"bias", bias}};
  const bool quantised = !parts[0].format.is_unquantised();
  if (quantised) {
    Result<QuantisedWeights> weights = quantised_weights(name, parts);
    if (!weights.ok()) {
      graph.fail(weights.status());
      return x;
    }
    for (WeightSpec& weight : weights->weights) operands.push_back(add_weight(std::move(weight)));
    const ir::Attributes of_matrix = weights->format.attributes();
    attributes.insert(attributes.end(), of_matrix.begin(), of_matrix.end());
    attributes.emplace_back("inputs", std::string(rounding_of_inputs(parts[0].format)));
  } else {
    operands.push_back(add_weight(unquantised_weight(name, parts, options_.weight_type())));
  }
  if (std::optional<AdaptableLinear> linear = adaptable_linear(graph.graph().value(operands[1]).name, parts))
    linears_.push_back(*std::move(linear));
  if (bias) operands.push_back(add_weight(bias_weight(name, parts, options_.weight_type())));
  if (residual) {
    operands.push_back(*residual);
    attributes.emplace_back("residual", true);
  }
  return graph.op(quantised ? "quantised_linear" : "linear", operands, attributes);
}

ir::ValueId LayerBuilder::linear(const std::string& name, ir::ValueId x, const std::vector<LinearBlock>& blocks,
                                 bool bias, Parallel parallel, std::optional<ir::ValueId> residual) {
  if (!graph.ok()) return x;
  const Result<std::vector<LinearPart>> parts =
      parts_of(blocks, graph.type(x).shape.back().constant().value_or(0), parallel);
  if (!parts.ok()) {
    graph.fail(parts.status());
    return x;
  }
  const bool by_columns = parallel == Parallel::kRow || parallel == Parallel::kRowPart;
  // With row parallelism the ranks' results are partial sums, which are added, so only rank 0 adds the bias.
  const bool adds_bias = bias && (!by_columns || options_.tp_rank == 0);
  std::span<const LinearPart> rest = *parts;
  std::vector<ir::ValueId> results;
  while (!rest.empty()) {
    const std::size_t count = end_of_run(rest);
    const bool whole = count == parts->size();
    results.push_back(linear_of(whole ? name : fmt::format("{}.{}", name, results.size()), x, rest.first(count),
                                adds_bias, whole ? residual : std::nullopt));
    rest = rest.subspan(count);
  }
  ir::ValueId y = results[0];
  if (results.size() > 1) {
    y = graph.op("join", results);
    if (residual) y = graph.op("add", {y, *residual});
  }
  if (parallel == Parallel::kRow && options_.tp_size > 1) graph.op("all_reduce", {y});
  return y;
}

Result<Storage> LayerBuilder::read_as_numbers(const std::string& module, std::int64_t rows, std::int64_t cols,
                                              std::string_view reason) {
  const WeightFormat format = TRY(format_of(module));
  if (format.is_unquantised()) {
    leave_at_start(module, std::string(reason));
    return Storage(PlainStorage{});
  }
  if (format.is_blocks()) {
    dequantised_.push_back({.module = module, .format = describe(format), .reason = std::string(reason)});
    return Storage(PlainStorage{});
  }
  if (format.spelling != WeightFormat::Spelling::kScaled)
    return unimplemented(
        fmt::format("{} is {}; accepted: F32, F16 or BF16, FP8 or INT8, as {}", module, describe(format), reason));
  note_stored(module, format);
  dequantised_.push_back({.module = module, .format = describe(format), .reason = std::string(reason)});
  return Storage(ScaledStorage{.scale = fmt::format("{}.{}", module, format.scale),
                               .block_rows = format.block_rows > 0 ? format.block_rows : rows,
                               .block_cols = format.block_cols > 0 ? format.block_cols : cols});
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

void LayerBuilder::note_layer_input(ir::ValueId stream) {
  if (num_layers_ > 0) layer_inputs_.emplace(num_layers_ - 1, stream);
}

std::optional<ir::ValueId> LayerBuilder::layer_input(std::int64_t layer) const {
  const auto found = layer_inputs_.find(layer);
  return found == layer_inputs_.end() ? std::nullopt : std::optional(found->second);
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
