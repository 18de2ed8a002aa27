// Feed-forward layers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Returns gate above up, from one tensor each ("<prefix>gate_proj", "up_proj").
std::vector<LinearBlock> gate_up_blocks(const ModelConfig& config, const std::string& prefix);
// Like gate_up_blocks(), from one tensor of the checkpoint, "<prefix>gate_up_proj".
std::vector<LinearBlock> fused_gate_up_blocks(const ModelConfig& config, const std::string& prefix);

// Returns down(act(gate(x)) · up(x)), x [T, hidden] → [T, hidden]. `down` is kRow, or kRowPart if the ranks' parts are
// not to be added yet. A `residual` [T, hidden] is added to the result.
ir::ValueId gated_mlp(LayerBuilder& b, const ModelConfig& config, ir::ValueId x,
                      const std::vector<LinearBlock>& gate_up, const std::string& prefix,
                      Parallel down = Parallel::kRow, std::optional<ir::ValueId> residual = std::nullopt);

}  // namespace tessera
