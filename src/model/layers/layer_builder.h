// What layers are written with: a graph and the weights that it uses. A layer declares each weight where it uses it:
// the value in the graph, and the tensors of the checkpoint that it is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/model/model.h"

namespace tessera {

// Which part of a matmul a rank computes.
enum class Parallel : std::uint8_t {
  kNone,     // every rank computes all of it
  kColumn,   // a slice of the outputs; what follows works on the slice
  kRow,      // a slice of the inputs; partial sums are added over the ranks
  kRowPart,  // the same, without the sum over the ranks: the caller adds more to it first
};

// One output block of a linear layer: rows of a matrix [*, in] of the checkpoint.
struct LinearBlock {
  std::string tensor;  // without ".weight" or ".bias"
  std::int64_t rows = 0;
  // KV heads, where ranks may be more than heads: neighbouring ranks then hold the same head. 0: rows divide freely.
  std::int64_t heads = 0;
  // Where the tensor holds several blocks one below the other: this block's first row, and the rows of all.
  std::int64_t first_row = 0;
  std::int64_t tensor_rows = 0;  // 0: the block is the whole tensor
  Storage storage = {};          // of the matrix; biases are plain
  // Zeros behind the block, without ranks that share it out: more rows of the result, and x has more columns than the
  // matrix. 0: none.
  std::int64_t padded_rows = 0;
  std::int64_t cols = 0;  // of the tensor, where x has more
};

// The rows of the block that a rank of column parallelism holds. invalid_argument where they do not divide.
Result<TensorSlice> rank_rows(const LinearBlock& block, int rank, int ranks);

class LayerBuilder {
 public:
  // Borrows `ops` for its life. The body's tensors begin with `tensor_prefix` in the checkpoint.
  LayerBuilder(std::string graph_name, const ModelOptions& options, const ir::OpTable& ops,
               std::string tensor_prefix = "model.")
      : graph(std::move(graph_name), ops), options_(options), tensor_prefix_(std::move(tensor_prefix)) {}

  ir::GraphBuilder graph;

  // A norm's vector [size].
  ir::ValueId norm_weight(const std::string& tensor, std::int64_t size);
  // A norm's vector made of several parts of one tensor: parts[i] is its i-th piece.
  ir::ValueId norm_weight(const std::string& tensor, std::int64_t size, const std::vector<TensorSlice>& parts);
  // A vector of `size` elements, or this rank's slice of it, as values of `dtype`.
  ir::ValueId vector(const std::string& tensor, std::int64_t size, ir::DType dtype, const TensorSlice& slice = {});
  // A matrix [rows, cols], the same on every rank.
  ir::ValueId matrix(const std::string& tensor, std::int64_t rows, std::int64_t cols);
  // A vector of ones, of the weights' type.
  ir::ValueId ones(std::int64_t size);
  // Values that the config determines, float32.
  ir::ValueId constant(const std::string& name, std::vector<float> values);

  // A weight of any form. One that is declared under its name already is that one.
  ir::ValueId add_weight(WeightSpec spec);

  // x [T, in] → [T, rows of all blocks on this rank]; the blocks' weights are one matrix named `name`.
  // Row-parallel: one block; kRow ends with an all-reduce where there are ranks. A `residual` of the result's shape is
  // added before that, by each rank its own.
  ir::ValueId linear(const std::string& name, ir::ValueId x, const std::vector<LinearBlock>& blocks, bool bias,
                     Parallel parallel, std::optional<ir::ValueId> residual = std::nullopt);

  // Where ranks have tokens of their own (ModelOptions::dp_size): x [T, …] of all ranks, one below the other; each x is
  // gathered once. And of y [ranks · T, N], a part of all rows' sums on every rank, the sums of this rank's rows. With
  // one rank the value itself.
  ir::ValueId rows_of_all_ranks(ir::ValueId x);
  ir::ValueId sums_of_own_rows(ir::ValueId y);

  // A tensor of the body that belongs to no layer: "norm.weight" is "model.norm.weight" in most checkpoints.
  std::string tensor(std::string_view name) const { return tensor_prefix_ + std::string(name); }

  // Names the following values "layers.<layer>.*" in the graph; the layer's tensors in the checkpoint begin with the
  // result, "model.layers.<layer>.".
  std::string begin_layer(std::int64_t layer);
  void end_layers() { graph.scope(""); }
  // [layers begun]: the node with which each begins.
  std::span<const std::size_t> layer_starts() const { return layer_starts_; }
  // Of the layer begun last, for operators that read ForwardContext::layers.
  void describe_layer(LayerInfo info);

  std::vector<WeightSpec> take_weights() { return std::move(weights_); }
  // [layers begun], or none where no layer was described.
  std::vector<LayerInfo> take_layers();
  const ModelOptions& options() const { return options_; }

 private:
  ModelOptions options_;
  std::string tensor_prefix_;
  std::vector<WeightSpec> weights_;
  std::vector<std::pair<ir::ValueId, ir::ValueId>> gathered_;  // what rows_of_all_ranks() took and gave
  std::int64_t num_layers_ = 0;                                // begun
  std::vector<std::size_t> layer_starts_;
  std::vector<LayerInfo> layers_;  // up to the last one described
};

}  // namespace tessera
