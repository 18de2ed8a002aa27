// The layers that architectures are written with, as graph builders. Each declares its weights where
// it uses them: the value in the graph and the tensors of the checkpoint it is made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/model/model.h"

namespace tessera {

// Which part of a matmul a rank computes.
enum class Parallel : std::uint8_t {
  kNone,    // every rank all of it
  kColumn,  // a slice of the outputs; what follows works on the slice
  kRow,     // a slice of the inputs; partial sums are added over the ranks
};

// One output block of a linear layer: rows of a checkpoint matrix [rows, in].
struct LinearBlock {
  std::string tensor;  // without ".weight" or ".bias"
  std::int64_t rows;
  // Column-parallel with fewer blocks of rows than ranks (KV heads): ranks share a block. Blocks, or 0.
  std::int64_t replicated_blocks = 0;
};

class LayerBuilder {
 public:
  LayerBuilder(std::string graph_name, const ModelOptions& options, const ir::OpTable& ops)
      : graph(std::move(graph_name), ops), options_(options) {}

  ir::GraphBuilder graph;

  // A norm's vector [size] (or any whole tensor of the checkpoint).
  ir::ValueId norm_weight(const std::string& tensor, std::int64_t size);
  ir::ValueId matrix(const std::string& tensor, std::int64_t rows, std::int64_t cols);
  // Values that the config determines, float32.
  ir::ValueId constant(const std::string& name, std::vector<float> values);

  // x [T, in] → [T, Σ rows of this rank]; the blocks' weights are one matrix named `name`.
  // Row-parallel: one block; ends with an all-reduce where there are ranks.
  ir::ValueId linear(const std::string& name, ir::ValueId x, std::int64_t in, const std::vector<LinearBlock>& blocks,
                     bool bias, Parallel parallel);

  std::vector<WeightSpec> take_weights() { return std::move(weights_); }
  const ModelOptions& options() const { return options_; }

 private:
  ir::ValueId add_weight(WeightSpec spec);

  ModelOptions options_;
  std::vector<WeightSpec> weights_;
};

}  // namespace tessera
