// The builder with which layers are written: a graph and the weights that it uses. A layer declares each weight where
// it uses it: the value in the graph, and the tensors of the checkpoint from which it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/model/formats/weight_formats.h"
#include "tessera/model/layers/linear_parts.h"
#include "tessera/model/model.h"

namespace tessera {

// The part of a matmul that a rank computes.
enum class Parallel : std::uint8_t {
  kNone,     // every rank computes all of it
  kColumn,   // a slice of the outputs; later operators work on the slice
  kRow,      // a slice of the inputs; partial sums are added over the ranks
  kRowPart,  // like kRow without the sum over the ranks: the caller adds more to it first
};

// Whether the matrix of a linear may be quantised.
enum class Quantisable : std::uint8_t {
  kYes,       // if the checkpoint stores it so, or at the start
  kIfStored,  // only if the checkpoint stores it so: heads, routers, gates, which published checkpoints leave as
              // numbers
  kNo,        // only as a GGUF file's blocks, whatever the checkpoint's settings say of linears: a tied head
};

// One output block of a linear layer: rows of a matrix [*, in] of the checkpoint.
struct LinearBlock {
  std::string tensor;  // without ".weight" or ".bias"
  std::int64_t rows = 0;
  // Number of KV heads, for matrices of KV heads: if there are more ranks than heads, neighbouring ranks hold the same
  // head. 0: rows divide freely.
  std::int64_t heads = 0;
  // The block's first row, and the rows of the whole tensor, for a tensor that holds several blocks one below the
  // other.
  std::int64_t first_row = 0;
  std::int64_t tensor_rows = 0;  // 0: the block is the whole tensor
  Storage storage = {};          // how the matrix is stored; biases are plain
  // Number of rows of the block and of the zero rows behind it, which become columns of the result. Only for blocks
  // that ranks do not divide. 0: no zero rows.
  std::int64_t padded_rows = 0;
  std::int64_t cols = 0;  // columns of the tensor; further columns of x meet zeros. 0: the columns of x
  Quantisable quantisable = Quantisable::kYes;
};

// Returns the rows of the block that a rank of column parallelism holds. invalid_argument if they do not divide.
Result<TensorSlice> rank_rows(const LinearBlock& block, int rank, int ranks);

class LayerBuilder {
 public:
  // `ops` must outlive the builder. In the checkpoint the names of the body's tensors begin with `tensor_prefix`, and
  // `formats` says how the matrices of its linears are stored.
  LayerBuilder(std::string graph_name, const ModelOptions& options, const ir::OpTable& ops,
               std::string tensor_prefix = "model.", WeightFormats formats = {})
      : graph(std::move(graph_name), ops),
        options_(options),
        tensor_prefix_(std::move(tensor_prefix)),
        formats_(std::move(formats)) {}

  ir::GraphBuilder graph;

  // Adds a norm's vector [size].
  ir::ValueId norm_weight(const std::string& tensor, std::int64_t size);
  // Adds a norm's vector that is made of several parts of one tensor: parts[i] is its i-th part.
  ir::ValueId norm_weight(const std::string& tensor, std::int64_t size, const std::vector<TensorSlice>& parts);
  // Adds a vector of `size` elements, or this rank's slice of it, with values of `dtype`.
  ir::ValueId vector(const std::string& tensor, std::int64_t size, ir::DType dtype, const TensorSlice& slice = {});
  // Adds a matrix [rows, cols] that is the same on every rank.
  ir::ValueId matrix(const std::string& tensor, std::int64_t rows, std::int64_t cols);
  // Adds a vector of ones, of the weights' type.
  ir::ValueId ones(std::int64_t size);
  // Adds float32 values that the config determines.
  ir::ValueId constant(const std::string& name, std::vector<float> values);

  // Adds a weight of any form. If a weight with its name is already declared, returns that one.
  ir::ValueId add_weight(WeightSpec spec);

  // Adds a linear: x [T, in] → [T, rows of all blocks on this rank]. The blocks' weights form one matrix named `name`.
  // Row parallelism takes one block; kRow ends with an all-reduce if there are several ranks. `residual` has the
  // result's shape; each rank adds its own before the all-reduce.
  ir::ValueId linear(const std::string& name, ir::ValueId x, const std::vector<LinearBlock>& blocks, bool bias,
                     Parallel parallel, std::optional<ir::ValueId> residual = std::nullopt);

  // Exchange rows between ranks that have tokens of their own (ModelOptions::dp_size). rows_of_all_ranks() returns the
  // x [T, …] of all ranks, one below the other; each x is gathered only once. The second function takes y [ranks · T,
  // N], each rank's part of all rows' sums, and returns the sums of this rank's rows. With one rank both return the
  // value itself.
  ir::ValueId rows_of_all_ranks(ir::ValueId x);
  ir::ValueId sums_of_own_rows(ir::ValueId y);

  // Returns the name of a tensor of the body that belongs to no layer: "norm.weight" is "model.norm.weight" in most
  // checkpoints.
  std::string tensor(std::string_view name) const { return tensor_prefix_ + std::string(name); }

  // Begins a layer: names the following values "layers.<layer>.*" in the graph. Returns the prefix of the layer's
  // tensors in the checkpoint, "model.layers.<layer>.".
  std::string begin_layer(std::int64_t layer);
  void end_layers() { graph.scope(""); }
  // Returns [layers begun]: the first node of each layer.
  std::span<const std::size_t> layer_starts() const { return layer_starts_; }
  // Records the residual stream at the input of the layer that was begun last, if none is recorded yet.
  void note_layer_input(ir::ValueId stream);
  // Returns the recorded stream [T, hidden]; nothing for a layer that does not begin with a norm of it.
  std::optional<ir::ValueId> layer_input(std::int64_t layer) const;
  // Describes the layer that was begun last, for operators that read ForwardContext::layers.
  void describe_layer(LayerInfo info);

  // Notes how the matrix of `module` is stored. No effect if the checkpoint has no quantised ones.
  void note_stored(const std::string& module, const WeightFormat& format);
  // Returns whether each expert of "<prefix><e>.<matrix>" has matrices of its own in the checkpoint or, if that is not
  // known, in the settings of the quantised matrices.
  bool has_separate_experts(const std::string& prefix, const std::string& matrix) const;

  // Returns how the matrix [rows, cols] of `module` is read as numbers, for an operator that takes no quantised matrix.
  // If the matrix is quantised, keeps `reason` as a note. unimplemented for formats that cannot be read so.
  Result<Storage> read_as_numbers(const std::string& module, std::int64_t rows, std::int64_t cols,
                                  std::string_view reason);

  // Returns the format to which the unquantised matrix of `module`, with rows of `cols` values, is quantised at the
  // start. Returns a plain format if linears are not quantised at the start, or if the columns do not fit, which is
  // noted.
  WeightFormat format_at_start(const std::string& module, std::int64_t cols);
  // Notes that the unquantised matrix of `module` is not quantised at the start, and why. No effect if no linears are.
  void leave_at_start(const std::string& module, const std::string& reason);
  // Returns whether linears are quantised at the start.
  bool quantises_at_start() const { return formats_.at_start().has_value(); }

  std::vector<WeightSpec> take_weights() { return std::move(weights_); }
  std::vector<StoredMatrix> take_stored() { return std::move(stored_); }
  std::vector<DequantisedWeight> take_dequantised() { return std::move(dequantised_); }
  std::vector<WeightAtStart> take_at_start() { return std::move(at_start_); }
  // Notes an embedding or a linear that adapters may change. linear() notes its own.
  void note_adaptable(AdaptableLinear linear) { linears_.push_back(std::move(linear)); }
  // Returns what adapters may change.
  std::vector<AdaptableLinear> take_linears() { return std::move(linears_); }
  // Returns [layers begun], or nothing if no layer was described.
  std::vector<LayerInfo> take_layers();
  const ModelOptions& options() const { return options_; }
  // Returns how the checkpoint stores the matrix of a linear; `module` is its tensor's name without ".weight".
  Result<WeightFormat> format_of(const std::string& module) const;
  // Returns the format of a matrix of GGUF's blocks that operators take; nothing if the matrix is stored otherwise.
  std::optional<WeightFormat> blocks_of(const std::string& module) const;

 private:
  Result<std::vector<LinearPart>> parts_of(const std::vector<LinearBlock>& blocks, std::int64_t local_in,
                                           Parallel parallel);
  // Returns the format of a block's matrix, whose rows in the checkpoint have `cols` values.
  Result<WeightFormat> format_of_block(const LinearBlock& block, std::int64_t cols);
  void note_at_start(WeightAtStart weight);
  // Adds the product with the matrix of parts that have one format.
  ir::ValueId linear_of(const std::string& name, ir::ValueId x, std::span<const LinearPart> parts, bool bias,
                        std::optional<ir::ValueId> residual);

  ModelOptions options_;
  std::string tensor_prefix_;
  WeightFormats formats_;
  std::vector<WeightSpec> weights_;
  std::vector<StoredMatrix> stored_;
  std::set<std::string, std::less<>> noted_stored_;  // modules of stored_
  std::vector<DequantisedWeight> dequantised_;
  std::vector<WeightAtStart> at_start_;
  std::set<std::string, std::less<>> noted_at_start_;  // modules of at_start_
  std::vector<AdaptableLinear> linears_;
  std::vector<std::pair<ir::ValueId, ir::ValueId>> gathered_;  // operand and result of each rows_of_all_ranks()
  std::int64_t num_layers_ = 0;                                // layers begun
  std::vector<std::size_t> layer_starts_;
  std::map<std::int64_t, ir::ValueId> layer_inputs_;  // by layer
  std::vector<LayerInfo> layers_;                     // up to the last described layer
};

}  // namespace tessera
