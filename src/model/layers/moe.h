// Mixtures of experts instead of a feed-forward layer: a router, the experts that it chooses for each token, and, in
// some models, an MLP for every token.
//
//   h.add(moe_mlp(b, config, h.norm(…), tokens.padding_slots, separate_experts(p + "mlp.")));
//
// A family whose router reads another value than its experts, or that adds results up in its own way, calls the
// functions of the parts.
#pragma once

#include <string>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// How checkpoints of a family store the experts of a layer. A checkpoint whose experts are quantised one by one is read
// as kSeparate, whatever the family's layout. With MoeConfig::mxfp4, experts are stored like kInterleaved, but gate and
// up alternate in the tensors' rows instead of columns: "<prefix>gate_up_proj_blocks" and "…_scales",
// "<prefix>down_proj_blocks" …
enum class ExpertLayout {
  kSeparate,     // three matrices for each expert: "<prefix><e>.gate_proj.weight" [I, H], up_proj, down_proj [H, I]
  kStacked,      // "<prefix>gate_up_proj" [E, 2I, H], gate above up, and "<prefix>down_proj" [E, H, I]
  kTransposed,   // both transposed: [E, H, 2I], the columns of gate before those of up, and [E, I, H]
  kInterleaved,  // both transposed, columns of gate and up alternating: [E, H, 2I] and [E, I, H]
};

struct ExpertTensors {
  std::string prefix = {};  // "model.layers.0.mlp.experts."
  ExpertLayout layout = ExpertLayout::kSeparate;
  std::string gate = "gate_proj";  // names in kSeparate
  std::string up = "up_proj";
  std::string down = "down_proj";
};

struct RouterTensors {
  std::string weight = {};        // without ".weight" or ".bias": "model.layers.0.mlp.gate"
  std::string correction = {};    // tensor of all experts' corrections, if the config has a correction_bias
  std::string expert_scale = {};  // tensor of all experts' scales; empty: none
};

struct MoeTensors {
  RouterTensors router = {};
  ExpertTensors experts = {};
  std::string shared = {};       // prefix of the shared MLP, "<prefix>shared_experts.", if the config has a size for it
  std::string shared_gate = {};  // tensor of its gate, without ".weight", if the config has one
};

// Returns the usual names: "<prefix>gate", "<prefix>experts.<e>.gate_proj", "<prefix>gate.e_score_correction_bias".
MoeTensors separate_experts(const std::string& prefix);

// The experts of each token and their weights, as moe_route returns them, reduced to experts that this rank has a part
// of.
struct Routing {
  ir::ValueId ids = {};      // i32[T, experts_per_token]
  ir::ValueId weights = {};  // f32[T, experts_per_token]
};
// Routes x [T, hidden]; `slots` i32[T] is TokenInputs::padding_slots. If scores are sigmoids, the router computes in
// float32 like the original models, because their scores lie close together.
Routing route_tokens(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                     const RouterTensors& tensors);

// Returns the weighted sum of the experts: x [T, hidden] → [T, hidden]. Each rank has one ModelOptions::ep_size-th of
// the experts; if several ranks have the same experts, each has a slice of their intermediate size. The result is the
// rank's part of the sum, and the caller adds up the ranks. Also describes the layer.
ir::ValueId add_experts(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const Routing& routing,
                        const ExpertTensors& tensors);

// Runs router, experts and the shared MLP, and sums over the ranks: x [T, hidden] → [T, hidden].
ir::ValueId moe_mlp(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                    const MoeTensors& tensors);

// Like moe_mlp() if the layer has experts, else its gated MLP, "<prefix>gate_proj" …
ir::ValueId moe_or_mlp(LayerBuilder& b, const ModelConfig& config, std::int64_t layer, ir::ValueId x, ir::ValueId slots,
                       const MoeTensors& tensors, const std::string& prefix);

}  // namespace tessera
