#include "tessera/model/layers/layer_inputs.h"

#include <algorithm>
#include <cmath>

#include "tessera/model/layers/head.h"
#include "tessera/ops/rows/view.h"

namespace tessera {
namespace {

// Splits x [T, parts · size] into `parts` values [T, size]. The operator split has at most kMaxSplits results, so its
// results may have to be split again.
void split_evenly(LayerBuilder& b, ir::ValueId x, std::int64_t parts, std::int64_t size, std::vector<ir::ValueId>& to) {
  if (parts == 1) {
    to.push_back(x);
    return;
  }
  const auto most = static_cast<std::int64_t>(kMaxSplits);
  const std::int64_t each = parts <= most ? 1 : (parts + most - 1) / most;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = parts; left > 0; left -= counts.back()) {
    counts.push_back(std::min(each, left));
    sizes.push_back(counts.back() * size);
  }
  const std::vector<ir::ValueId> pieces = b.graph.multi_op("split", {x}, {{"sizes", sizes}});
  for (std::size_t i = 0; i < pieces.size() && b.graph.ok(); ++i) split_evenly(b, pieces[i], counts[i], size, to);
}

// Returns the block of a linear that published checkpoints leave unquantised even if they quantise other linears.
LinearBlock unrounded(const std::string& tensor, std::int64_t rows) {
  return {.tensor = tensor, .rows = rows, .quantisable = Quantisable::kIfStored};
}

ir::ValueId activate(LayerBuilder& b, const ModelConfig& config, ir::ValueId x) {
  if (config.hidden_act == Activation::kSilu) return b.graph.op("silu", {x});
  return b.graph.op("gelu", {x}, {{"tanh", config.hidden_act == Activation::kGeluTanh}});
}

}  // namespace

std::vector<ir::ValueId> layer_inputs(LayerBuilder& b, const ModelConfig& config, ir::ValueId ids,
                                      ir::ValueId embedded) {
  const std::int64_t size = config.gemma4->per_layer_input_size;
  if (size == 0) return {};
  const std::int64_t all = config.num_hidden_layers * size;
  const ir::ValueId of_ids =
      look_up(b, {b.tensor("embed_tokens_per_layer.weight"), config.gemma4->per_layer_vocab_size, all}, ids, {},
              {{"scale", std::sqrt(static_cast<double>(size))}});

  const std::string projection = b.tensor("per_layer_model_projection");
  const ir::ValueId projected =
      b.graph.op("scale", {b.linear(projection, embedded, {unrounded(projection, all)}, false, Parallel::kNone)},
                 {{"factor", 1.0 / std::sqrt(static_cast<double>(config.hidden_size))}});
  const ir::ValueId normed =
      b.graph.op("head_norm", {projected, b.norm_weight(b.tensor("per_layer_projection_norm.weight"), size)},
                 norm_attributes(config));
  const ir::ValueId sum =
      b.graph.op("scale", {b.graph.op("add", {normed, of_ids})}, {{"factor", 1.0 / std::sqrt(2.0)}});
  std::vector<ir::ValueId> inputs;
  split_evenly(b, sum, config.num_hidden_layers, size, inputs);
  return inputs;
}

ir::ValueId layer_input_branch(LayerBuilder& b, const ModelConfig& config, ResidualStream& h, ir::ValueId own,
                               const std::string& prefix) {
  const std::string gate = prefix + "per_layer_input_gate";
  const std::string projection = prefix + "per_layer_projection";
  const std::int64_t size = config.gemma4->per_layer_input_size;
  const ir::ValueId gated =
      activate(b, config, b.linear(gate, h.value(), {unrounded(gate, size)}, false, Parallel::kNone));
  const ir::ValueId projected = b.linear(projection, b.graph.op("mul", {gated, own}),
                                         {unrounded(projection, config.hidden_size)}, false, Parallel::kNone);
  return h.norm_of(projected, prefix + "post_per_layer_input_norm.weight");
}

}  // namespace tessera
