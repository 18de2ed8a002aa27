// Makes the operands of moe_experts for experts whose matrices are quantised.
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
  std::vector<ir::ValueId> more = {};  // the other operands for gate_up, then those for down
  ir::Attributes attributes = {};      // "mxfp4" or "quantised", and attributes that belong to it
  WeightFormat format = {};
};

// Adds the weights of this rank's experts under names that begin with `prefix`. Returns nothing if the experts are
// neither stored quantised nor quantised at the engine's start, or if they are stored as GGUF blocks that operators
// cannot take. MXFP4 keeps its exponents if each rank has whole blocks of 32 columns. Otherwise the exponents become
// float32 scales. Returns invalid_argument if the experts of the layer have different formats, and the message names
// these formats. Returns unimplemented if the format permutes columns.
Result<std::optional<QuantisedExperts>> add_quantised_experts(LayerBuilder& b, const ExpertParts& parts,
                                                              const std::string& prefix);

}  // namespace tessera
