// Experts whose matrices are quantised, as operands of moe_experts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/model/layers/expert_parts.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

struct QuantisedExperts {
  ir::ValueId gate_up = {};
  ir::ValueId down = {};
  std::vector<ir::ValueId> more = {};  // the other operands of gate_up, then those of down
  ir::Attributes attributes = {};      // "mxfp4" or "quantised", and what belongs to it
  WeightFormat format = {};
};

// Adds the weights of this rank's experts under names that begin with `prefix`. Returns nothing if they are plain:
// neither stored as quantised nor quantised at the start. The operator takes MXFP4 in its own form if ranks have whole
// blocks of 32 columns. If ranks divide a block, its exponents become scales in float32. invalid_argument if the
// experts of the layer have several formats, which the message names; unimplemented if their columns have an order.
Result<std::optional<QuantisedExperts>> add_quantised_experts(LayerBuilder& b, const ExpertParts& parts,
                                                              const std::string& prefix);

}  // namespace tessera
