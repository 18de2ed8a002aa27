// Builds mixtures of experts, which replace an MLP. A mixture has a router, experts among which the router chooses for
// each token, and, in some models, a shared MLP for every token.
//
//   h.add(moe_mlp(b, config, h.norm(…), tokens.padding_slots, separate_experts(p + "mlp.")));
//
// moe_mlp() does all steps. The other functions do single steps. A family needs them if its router and its experts read
// different values, or if it adds up the results in its own way.
#pragma once

#include <string>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/layer_builder.h"

namespace tessera {

// How the checkpoints of a family store the experts of a layer, with E experts, hidden size H and intermediate size I.
// Some checkpoints with quantised experts have separate matrices although the family uses another layout. These
// checkpoints are read as kSeparate. With MoeConfig::mxfp4 the tensors are "<prefix>gate_up_proj_blocks" and
// "…_scales", "<prefix>down_proj_blocks" and "…_scales". The matrices are not transposed, and the rows of gate and up
// alternate.
enum class ExpertLayout {
  kSeparate,  // three matrices for each expert: "<prefix><e>.gate_proj.weight" [I, H], up_proj, down_proj [H, I]
  // "<prefix>gate_up_proj" [E, 2I, H], rows of gate before those of up, and "<prefix>down_proj" [E, H, I]
  kStacked,
  kTransposed,   // gate_up [E, H, 2I], columns of gate before those of up, and down [E, I, H]
  kInterleaved,  // like kTransposed, but the columns of gate and up alternate
};

struct ExpertTensors {
  std::string prefix = {};  // "model.layers.0.mlp.experts."
  ExpertLayout layout = ExpertLayout::kSeparate;
  std::string gate = "gate_proj";  // the three names are used only with kSeparate
  std::string up = "up_proj";
  std::string down = "down_proj";
};

struct RouterTensors {
  std::string weight = {};        // name without ".weight" or ".bias": "model.layers.0.mlp.gate"
  std::string correction = {};    // tensor with the correction biases of all experts, if config.moe has correction_bias
  std::string expert_scale = {};  // tensor with the output scales of all experts; may be empty
};

struct MoeTensors {
  RouterTensors router = {};
  ExpertTensors experts = {};
  std::string shared = {};       // prefix of the shared MLP, "<prefix>shared_experts.", if config.moe gives it a size
  std::string shared_gate = {};  // tensor of the shared MLP's gate, without ".weight", if config.moe has shared_gate
};

// Returns the usual names: "<prefix>gate", "<prefix>experts.<e>.gate_proj", "<prefix>gate.e_score_correction_bias".
MoeTensors separate_experts(const std::string& prefix);

// The experts of each token and the weights of their results, as the operator moe_route returns both. An expert that is
// not on this rank has id -1 and weight 0.
struct Routing {
  ir::ValueId ids = {};      // i32[T, experts_per_token]
  ir::ValueId weights = {};  // f32[T, experts_per_token]
};
// Routes x [T, hidden]. `slots` i32[T] is TokenInputs::padding_slots. A router with sigmoid scores computes in float32,
// as in the original models, because the scores of different experts are close to each other.
Routing route_tokens(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                     const RouterTensors& tensors);

// Returns the weighted sum of the experts: x [T, hidden] → [T, hidden]. Each rank has 1 / ModelOptions::ep_size of the
// experts. If several ranks have the same experts, each has a slice of their intermediate size. The result is a partial
// sum, which the caller must sum over the ranks. Also describes the layer (LayerBuilder::describe_layer).
ir::ValueId add_experts(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const Routing& routing,
                        const ExpertTensors& tensors);

// Runs router, experts and shared MLP, and sums over the ranks: x [T, hidden] → [T, hidden].
ir::ValueId moe_mlp(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                    const MoeTensors& tensors);

// Like moe_mlp() if the layer has experts. Otherwise builds the layer's gated MLP from "<prefix>gate_proj" …
ir::ValueId moe_or_mlp(LayerBuilder& b, const ModelConfig& config, std::int64_t layer, ir::ValueId x, ir::ValueId slots,
                       const MoeTensors& tensors, const std::string& prefix);

}  // namespace tessera
