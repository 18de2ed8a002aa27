#include "tessera/model/layers/norm.h"

#include <utility>
#include <vector>

namespace tessera {

ir::Attributes norm_attributes(const ModelConfig& config) {
  ir::Attributes attributes{{"eps", config.rms_norm_eps}};
  if (config.round_norms_once) attributes.emplace_back("round_once", true);
  if (config.unit_offset_norms) attributes.emplace_back("unit_offset", true);
  return attributes;
}

void ResidualStream::add(ir::ValueId branch) {
  sum_ = value();
  pending_ = branch;
}

ir::ValueId ResidualStream::value() {
  if (pending_) sum_ = b_.graph.op("add", {*std::exchange(pending_, std::nullopt), sum_});
  return sum_;
}

void ResidualStream::scale(ir::ValueId factor) { sum_ = b_.graph.op("mul", {value(), factor}); }

ir::ValueId ResidualStream::norm(const std::string& weight) {
  if (!pending_) {
    b_.note_layer_input(sum_);
    return norm_of(sum_, weight);
  }
  const ir::ValueId w = b_.norm_weight(weight, hidden_size_);
  const std::vector<ir::ValueId> both =
      b_.graph.multi_op("add_rms_norm", {*std::exchange(pending_, std::nullopt), sum_, w}, attributes_);
  sum_ = both[1];
  b_.note_layer_input(sum_);
  return both[0];
}

ir::ValueId ResidualStream::norm_of(ir::ValueId x, const std::string& weight) {
  return b_.graph.op("rms_norm", {x, b_.norm_weight(weight, hidden_size_)}, attributes_);
}

ir::ValueId whole_row_norm(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const LinearBlock& block,
                           const std::string& weight) {
  const int ranks = b.options().tp_size;
  // If several ranks hold the same KV head, the gathered row contains this head several times. In that case every head
  // occurs equally often, so the mean of squares does not change.
  std::vector<TensorSlice> slices;
  for (int rank = 0; rank < ranks; ++rank) {
    const Result<TensorSlice> rows = rank_rows(block, rank, ranks);
    if (!rows.ok()) {
      b.graph.fail(rows.status());
      return x;
    }
    slices.push_back(*rows);
  }
  if (ranks > 1) x = b.graph.op("all_gather", {x}, {{"ranks", std::int64_t{ranks}}});
  const ir::ValueId normed =
      b.graph.op("rms_norm", {x, b.norm_weight(weight, block.rows, slices)}, norm_attributes(config));
  if (ranks == 1) return normed;

  const std::int64_t size = slices[0].size;
  const std::int64_t before = size * b.options().tp_rank;
  const std::int64_t after = size * (ranks - 1) - before;
  std::vector<std::int64_t> sizes;
  if (before > 0) sizes.push_back(before);
  sizes.push_back(size);
  if (after > 0) sizes.push_back(after);
  return b.graph.multi_op("split", {normed}, {{"sizes", sizes}})[before > 0 ? 1 : 0];
}

}  // namespace tessera
