// Builds gated delta nets, which replace attention (ops/recurrent/gated_delta_net.h). The layer takes the normed hidden
// states and returns the result that is added to the residual stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// The joint projections of a layer, with this rank's rows. `qkvz` contains queries, keys, values and gates z. `ba`
// contains the logits b, from which beta is computed, and a, from which the decay gate is computed.
struct DeltaNetBlocks {
  std::vector<LinearBlock> qkvz;
  std::vector<LinearBlock> ba;
};
// Makes the blocks from the tensors "<prefix>in_proj_qkv", "in_proj_z", "in_proj_b" and "in_proj_a".
DeltaNetBlocks delta_net_blocks(LayerBuilder& b, const ModelConfig& config, const std::string& prefix);
// Like delta_net_blocks(), from the tensors "<prefix>in_proj_qkvz" and "<prefix>in_proj_ba". In both tensors the rows
// of the first key head and its value heads come first, then the rows of the second key head and its value heads, and
// so on.
DeltaNetBlocks joint_delta_net_blocks(LayerBuilder& b, const ModelConfig& config, const std::string& prefix);

// Returns out(norm(delta(conv(qkv(x)), ba(x))) · silu(z(x))), x [T, hidden] → [T, hidden]. The layer keeps two states
// in its cache group: the last input rows of the convolution, and a matrix for each value head. If
// ModelOptions::max_drafts is above 0, it also keeps the rows of draft tokens there. Fails if the ranks cannot share
// the heads equally.
ir::ValueId delta_net(LayerBuilder& b, const ModelConfig& config, std::int64_t layer, ir::ValueId x,
                      const DeltaNetBlocks& blocks, const std::string& prefix);

}  // namespace tessera
