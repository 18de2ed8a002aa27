// Declares the builder with which layers write a graph and its weights. A layer declares each weight where it uses the
// weight. The builder adds the weight to the graph as a value, and keeps a WeightSpec that says from which tensors of
// the checkpoint the weight is made.
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

// How a matmul is divided among ranks.
enum class Parallel : std::uint8_t {
  kNone,     // every rank computes the whole matmul
  kColumn,   // each rank computes a slice of the outputs; later operators work on the slice
  kRow,      // each rank has a slice of the inputs; the partial sums are added over the ranks
  kRowPart,  // like kRow, but the caller adds more to the partial sums and then sums them over the ranks
};

// Whether the matrix of a linear may be quantised.
enum class Quantisable : std::uint8_t {
  kYes,  // quantised if it is stored quantised, or if linears are quantised at the engine's start
  // Quantised only if it is stored quantised. Used for heads, routers and gates, which most published checkpoints leave
  // unquantised.
  kIfStored,
  kNo,  // for a tied head: not quantised, unless it is stored as a GGUF file's blocks
};

// Some of a linear's outputs. They are computed from rows of one matrix [*, in] of the checkpoint.
struct LinearBlock {
  std::string tensor;  // name without ".weight" or ".bias"
  std::int64_t rows = 0;
  // If the rows belong to KV heads, the number of these heads. Ranks must not divide a KV head. If there are more ranks
  // than KV heads, neighbouring ranks hold the same head. 0 if ranks may divide the rows anywhere.
  std::int64_t heads = 0;
  // Only for a tensor that contains several blocks one after the other: the block's first row, and the number of rows
  // of the whole tensor.
  std::int64_t first_row = 0;
  std::int64_t tensor_rows = 0;  // 0 if the block is the whole tensor
  Storage storage = {};          // layout of the stored matrix; biases are stored as plain vectors
  // If zero rows are appended to the block as padding, the number of rows including them. 0 if no rows are appended.
  // The zero rows become columns of the result. Only blocks that ranks do not divide may have padding.
  std::int64_t padded_rows = 0;
  // Number of columns of the tensor; 0 if the tensor has as many columns as x. If x has more columns than the tensor,
  // the columns of x beyond those of the tensor are multiplied by zeros.
  std::int64_t cols = 0;
  Quantisable quantisable = Quantisable::kYes;
};

// Returns the rows of a block that a rank has under column parallelism. Returns invalid_argument if ranks cannot share
// the rows equally.
Result<TensorSlice> rank_rows(const LinearBlock& block, int rank, int ranks);

class LayerBuilder {
 public:
  // `ops` must outlive the builder. The names of the body's tensors in the checkpoint begin with `tensor_prefix`.
  // `formats` says how the matrices of the linears are stored.
  LayerBuilder(std::string graph_name, const ModelOptions& options, const ir::OpTable& ops,
               std::string tensor_prefix = "model.", WeightFormats formats = {})
      : graph(std::move(graph_name), ops),
        options_(options),
        tensor_prefix_(std::move(tensor_prefix)),
        formats_(std::move(formats)) {}

  ir::GraphBuilder graph;

  // Adds a norm's weight vector [size].
  ir::ValueId norm_weight(const std::string& tensor, std::int64_t size);
  // Adds a norm's weight vector that is made of several slices of one tensor, in the order of `parts`.
  ir::ValueId norm_weight(const std::string& tensor, std::int64_t size, const std::vector<TensorSlice>& parts);
  // Adds a vector of `size` elements, or this rank's slice of it, with values of `dtype`.
  ir::ValueId vector(const std::string& tensor, std::int64_t size, ir::DType dtype, const TensorSlice& slice = {});
  // Adds a matrix [rows, cols] that is the same on every rank.
  ir::ValueId matrix(const std::string& tensor, std::int64_t rows, std::int64_t cols);
  // Adds a vector of ones with the type of the weights.
  ir::ValueId ones(std::int64_t size);
  // Adds float32 values that are computed from the config, not read from the checkpoint.
  ir::ValueId constant(const std::string& name, std::vector<float> values);

  // Adds a weight. If a weight with this name is already declared, returns the declared weight.
  ir::ValueId add_weight(WeightSpec spec);

  // Adds a linear: x [T, in] → [T, rows of all blocks on this rank]. The blocks' weights form one matrix named `name`.
  // Row parallelism allows only one block. With several ranks, kRow ends with an all-reduce. `residual` has the shape
  // of the result and is added to it. With kRow each rank adds its own `residual` before the all-reduce.
  ir::ValueId linear(const std::string& name, ir::ValueId x, const std::vector<LinearBlock>& blocks, bool bias,
                     Parallel parallel, std::optional<ir::ValueId> residual = std::nullopt);

  // The next two functions exchange rows between ranks that process different tokens (ModelOptions::dp_size).
  // rows_of_all_ranks() concatenates the x [T, …] of all ranks. A second call with the same x returns the first result.
  // sums_of_own_rows() takes y [ranks · T, N], this rank's partial sums for the rows of all ranks, and returns the
  // complete sums of this rank's rows. With one rank both functions return their argument.
  ir::ValueId rows_of_all_ranks(ir::ValueId x);
  ir::ValueId sums_of_own_rows(ir::ValueId y);

  // Returns the full name of a body tensor that belongs to no layer: "norm.weight" becomes "model.norm.weight" in most
  // checkpoints.
  std::string tensor(std::string_view name) const { return tensor_prefix_ + std::string(name); }

  // Begins a layer. The names of the values that follow begin with "layers.<layer>." in the graph. Returns the prefix
  // of the layer's tensors in the checkpoint, "model.layers.<layer>.".
  std::string begin_layer(std::int64_t layer);
  void end_layers() { graph.scope(""); }
  // Returns the index of the first node of each layer that begin_layer() began.
  std::span<const std::size_t> layer_starts() const { return layer_starts_; }
  // Records the residual stream at the input of the current layer. Only the first call in a layer has an effect.
  void note_layer_input(ir::ValueId stream);
  // Returns the stream [T, hidden] that note_layer_input() recorded; nothing for a layer that does not begin with a
  // norm of the stream.
  std::optional<ir::ValueId> layer_input(std::int64_t layer) const;
  // Records a description of the current layer, for operators that read ForwardContext::layers.
  void describe_layer(LayerInfo info);

  // Records how the matrix of `module` is stored. Has no effect if the checkpoint has no quantised matrices.
  void note_stored(const std::string& module, const WeightFormat& format);
  // Returns whether the checkpoint has a separate matrix "<prefix><e>.<matrix>" for each expert. The checkpoint's
  // tensors decide. If the tensors are not known, the quantisation settings decide.
  bool has_separate_experts(const std::string& prefix, const std::string& matrix) const;

  // Used for an operator that does not support quantised matrices. Returns the storage with which the matrix [rows,
  // cols] of `module` is dequantised while it is loaded. Records `reason` as a note if the matrix is stored quantised,
  // or if linears are quantised at the engine's start. Returns unimplemented for formats that cannot be dequantised at
  // load.
  Result<Storage> read_as_numbers(const std::string& module, std::int64_t rows, std::int64_t cols,
                                  std::string_view reason);

  // Returns the format to which the engine quantises the unquantised matrix of `module` at its start. The matrix has
  // rows of `cols` values. Returns an unquantised format if linears are not quantised at the start. If `cols` is not a
  // multiple of start_cols(), returns an unquantised format and records the reason.
  WeightFormat format_at_start(const std::string& module, std::int64_t cols);
  // Records the reason why the unquantised matrix of `module` is not quantised at the engine's start. Has no effect if
  // no linears are quantised at the start.
  void leave_at_start(const std::string& module, const std::string& reason);
  // Returns whether linears are quantised at the engine's start.
  bool quantises_at_start() const { return formats_.at_start().has_value(); }

  std::vector<WeightSpec> take_weights() { return std::move(weights_); }
  std::vector<StoredMatrix> take_stored() { return std::move(stored_); }
  std::vector<DequantisedWeight> take_dequantised() { return std::move(dequantised_); }
  std::vector<WeightAtStart> take_at_start() { return std::move(at_start_); }
  // Records an embedding or a linear that adapters may change. linear() already records the linear that it adds.
  void note_adaptable(AdaptableLinear linear) { linears_.push_back(std::move(linear)); }
  // Returns the recorded linears and embeddings that adapters may change.
  std::vector<AdaptableLinear> take_linears() { return std::move(linears_); }
  // Returns one element for each layer that begin_layer() began. Returns an empty vector if describe_layer() was not
  // called.
  std::vector<LayerInfo> take_layers();
  const ModelOptions& options() const { return options_; }
  // Returns how the checkpoint stores a linear's matrix. `module` is the name of the matrix's tensor without ".weight".
  Result<WeightFormat> format_of(const std::string& module) const;
  // Returns the format of a matrix that is stored as GGUF blocks and that operators support; nothing for other
  // matrices.
  std::optional<WeightFormat> blocks_of(const std::string& module) const;

 private:
  Result<std::vector<LinearPart>> parts_of(const std::vector<LinearBlock>& blocks, std::int64_t local_in,
                                           Parallel parallel);
  // Returns the format of a block's matrix, whose rows in the checkpoint have `cols` values.
  Result<WeightFormat> format_of_block(const LinearBlock& block, std::int64_t cols);
  void note_at_start(WeightAtStart weight);
  // Adds a linear whose parts all have the same format.
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
  std::int64_t num_layers_ = 0;                                // number of layers begun
  std::vector<std::size_t> layer_starts_;
  std::map<std::int64_t, ir::ValueId> layer_inputs_;  // the key is the layer
  std::vector<LayerInfo> layers_;                     // one for each layer up to the last described layer
};

}  // namespace tessera
