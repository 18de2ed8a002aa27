// Gated delta nets instead of attention (ops/recurrent/gated_delta_net.h): everything between the norm before them and
// the residual stream after them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// The joint projections of a layer: this rank's rows of queries, keys, values and gates z, and of the logits b (of
// beta) and a (of the gate).
struct DeltaNetBlocks {
  std::vector<LinearBlock> qkvz;
  std::vector<LinearBlock> ba;
};
// Makes the blocks from the tensors "<prefix>in_proj_qkv", "in_proj_z", "in_proj_b" and "in_proj_a".
DeltaNetBlocks delta_net_blocks(LayerBuilder& b, const ModelConfig& config, const std::string& prefix);
// Like delta_net_blocks(), from the tensors "<prefix>in_proj_qkvz" and "in_proj_ba". These hold the rows of one key
// head after the other, each with the rows of its value heads.
DeltaNetBlocks joint_delta_net_blocks(LayerBuilder& b, const ModelConfig& config, const std::string& prefix);

// Returns out(norm(delta(conv(qkv(x)), ba(x))) · silu(z(x))), x [T, hidden] → [T, hidden]. The layer has two states,
// the convolution's last rows and a matrix for each value head; both lie in the layer's cache group. Fails if the heads
// do not divide among the ranks.
ir::ValueId delta_net(LayerBuilder& b, const ModelConfig& config, std::int64_t layer, ir::ValueId x,
                      const DeltaNetBlocks& blocks, const std::string& prefix);

}  // namespace tessera
