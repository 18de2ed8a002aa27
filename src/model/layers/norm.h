// RMS norms, and the residual stream that they read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Returns the attributes of the model's RMS norms: eps, round_once and unit_offset.
ir::Attributes norm_attributes(const ModelConfig& config);

// The residual stream of hidden states, to which every layer adds. The last added value stays pending, because the next
// norm adds it in the same pass over memory (add_rms_norm).
class ResidualStream {
 public:
  // `start` [T, hidden] is the embedding. `b` must outlive the stream.
  ResidualStream(LayerBuilder& b, ir::ValueId start, const ModelConfig& config)
      : b_(b), sum_(start), hidden_size_(config.hidden_size), attributes_(norm_attributes(config)) {}

  void add(ir::ValueId branch);                 // h += branch
  ir::ValueId norm(const std::string& weight);  // RMSNorm(h) with the tensor `weight`
  ir::ValueId value();                          // h
  void scale(ir::ValueId factor);               // h *= factor [1]
  // Returns RMSNorm(x) with the tensor `weight`, for an x [T, hidden] that is not the stream: post-norms.
  ir::ValueId norm_of(ir::ValueId x, const std::string& weight);

 private:
  LayerBuilder& b_;
  ir::ValueId sum_;
  std::optional<ir::ValueId> pending_;
  std::int64_t hidden_size_;
  ir::Attributes attributes_;
};

// Returns an RMSNorm over the whole row of `block`. x [T, its rows on this rank] is this rank's slice of the row. The
// ranks' slices are gathered first, and this rank's slice is taken from the normalised row.
ir::ValueId whole_row_norm(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const LinearBlock& block,
                           const std::string& weight);

}  // namespace tessera
