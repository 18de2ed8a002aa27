// Builds RMS norms, and the residual stream to which they are applied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Returns the attributes of the model's RMS norms: eps, round_once and unit_offset.
ir::Attributes norm_attributes(const ModelConfig& config);

// The residual stream h of hidden states, to which every layer adds its outputs. add() only stores the output's id. The
// next norm() adds the output, because the operator add_rms_norm adds and norms in one pass over memory.
class ResidualStream {
 public:
  // `start` [T, hidden] is the stream's first value. In a body it is the embedding. `b` must outlive the stream.
  ResidualStream(LayerBuilder& b, ir::ValueId start, const ModelConfig& config)
      : b_(b), sum_(start), hidden_size_(config.hidden_size), attributes_(norm_attributes(config)) {}

  void add(ir::ValueId branch);                 // h += branch
  ir::ValueId norm(const std::string& weight);  // RMSNorm(h) with the tensor `weight`
  ir::ValueId value();                          // h
  void scale(ir::ValueId factor);               // h *= factor [1]
  // Returns RMSNorm(x) with the tensor `weight` for any x [T, hidden]. Families that norm the result of attention need
  // this.
  ir::ValueId norm_of(ir::ValueId x, const std::string& weight);

 private:
  LayerBuilder& b_;
  ir::ValueId sum_;
  std::optional<ir::ValueId> pending_;
  std::int64_t hidden_size_;
  ir::Attributes attributes_;
};

// Applies RMSNorm to whole rows of `block`'s outputs, and returns this rank's slice of the result. x [T, rows of the
// block on this rank] is this rank's slice of the outputs. The slices of all ranks are gathered before the norm.
ir::ValueId whole_row_norm(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const LinearBlock& block,
                           const std::string& weight);

}  // namespace tessera
