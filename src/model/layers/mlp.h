// Builds gated MLPs, which are the feed-forward layers of most models.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// Returns two blocks: the rows of gate from the tensor "<prefix>gate_proj", then the rows of up from "<prefix>up_proj".
std::vector<LinearBlock> gate_up_blocks(const ModelConfig& config, const std::string& prefix);
// Like gate_up_blocks(), if the checkpoint has a single tensor "<prefix>gate_up_proj".
std::vector<LinearBlock> fused_gate_up_blocks(const ModelConfig& config, const std::string& prefix);

// Returns down(act(gate(x)) · up(x)) + `residual`, all [T, hidden]. The parameter `down` says how ranks divide the last
// matmul: kRow, or kRowPart if the caller sums over the ranks.
ir::ValueId gated_mlp(LayerBuilder& b, const ModelConfig& config, ir::ValueId x,
                      const std::vector<LinearBlock>& gate_up, const std::string& prefix,
                      Parallel down = Parallel::kRow, std::optional<ir::ValueId> residual = std::nullopt);

}  // namespace tessera
