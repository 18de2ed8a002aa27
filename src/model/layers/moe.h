// Mixtures of experts in place of a feed-forward layer: a router, the experts that it chooses for each token, and an
// MLP that every token goes through where the model has one.
//
//   h.add(moe_mlp(b, config, h.norm(…), tokens.padding_slots, separate_experts(p + "mlp.")));
//
// A family whose router reads something else than its experts, or that adds things up in its own way, calls the parts.
#pragma once

#include <string>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// How a checkpoint stores the experts of a layer. Those of a config with mxfp4 are stored as kInterleaved has them in
// the tensors' rows instead of the columns: "<prefix>gate_up_proj_blocks" and "…_scales", "<prefix>down_proj_blocks" …
enum class ExpertLayout {
  kSeparate,     // three matrices for each: "<prefix><e>.gate_proj.weight" [I, H], up_proj, down_proj [H, I]
  kStacked,      // "<prefix>gate_up_proj" [E, 2I, H], gate above up, and "<prefix>down_proj" [E, H, I]
  kTransposed,   // the transposes of both: [E, H, 2I], the columns of gate before those of up, and [E, I, H]
  kInterleaved,  // the transposes of both, with the columns of gate and up in turn: [E, H, 2I] and [E, I, H]
};

struct ExpertTensors {
  std::string prefix = {};  // "model.layers.0.mlp.experts."
  ExpertLayout layout = ExpertLayout::kSeparate;
  std::string gate = "gate_proj";  // the names of kSeparate
  std::string up = "up_proj";
  std::string down = "down_proj";
};

struct RouterTensors {
  std::string weight = {};        // without ".weight" or ".bias": "model.layers.0.mlp.gate"
  std::string correction = {};    // of all experts, where the config has a correction_bias
  std::string expert_scale = {};  // of all experts; empty: none
};

struct MoeTensors {
  RouterTensors router = {};
  ExpertTensors experts = {};
  std::string shared = {};       // of the MLP, "<prefix>shared_experts.", where the config has a size for it
  std::string shared_gate = {};  // of its gate, without ".weight", where the config has one
};

// The most frequent names: "<prefix>gate", "<prefix>experts.<e>.gate_proj", "<prefix>gate.e_score_correction_bias".
MoeTensors separate_experts(const std::string& prefix);

// For each token the experts and their weights, as moe_route gives them: among those that this rank has a part of.
struct Routing {
  ir::ValueId ids = {};      // i32[T, experts_per_token]
  ir::ValueId weights = {};  // f32[T, experts_per_token]
};
// x [T, hidden]; `slots` i32[T] are TokenInputs::padding_slots. Where scores are sigmoids the router is computed in
// float32, as its models do: their scores lie close together.
Routing route_tokens(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                     const RouterTensors& tensors);

// The weighted sum of the experts: x [T, hidden] → [T, hidden]. Each rank has ModelOptions::ep_size-th of the experts
// and of each a slice of the intermediate size, where several ranks have the same ones; the result is its part of the
// sum, and the caller adds the ranks'. Describes the layer.
ir::ValueId add_experts(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const Routing& routing,
                        const ExpertTensors& tensors);

// Router, experts and the shared MLP, the sum over ranks included: x [T, hidden] → [T, hidden].
ir::ValueId moe_mlp(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                    const MoeTensors& tensors);

// The same where the layer has experts, else its gated MLP, "<prefix>gate_proj" …
ir::ValueId moe_or_mlp(LayerBuilder& b, const ModelConfig& config, std::int64_t layer, ir::ValueId x, ir::ValueId slots,
                       const MoeTensors& tensors, const std::string& prefix);

}  // namespace tessera
