// moe_route chooses the experts of each token, and their weights.
//
//   moe_route(logits X[T, E], slots i32[T], (correction f32[E]), (expert_scale f32[E]))
//       {top_k, scoring = "softmax", normalise = false, groups = 1, groups_per_token = 1, group_score = "best",
//        scale = 1, correction = false, expert_scale = false, first_expert = 0, local_experts = E}
//       → ids i32[T, top_k], weights f32[T, top_k]
//
// With s = softmax(logits) or sigmoid(logits) over the E experts of a row, in float32, and c = s + correction:
//   groups     E / groups neighbouring experts form a group. The groups_per_token groups with the highest scores stay.
//              A group's score is the greatest c ("best", DeepSeek-V2) or the sum of the two greatest ("best_two",
//              DeepSeek-V3).
//   ids        the top_k experts with the highest c in those groups, the highest first
//   weights    s of each chosen expert, times `scale`, times its expert_scale. If `normalise` is set, s is first
//              divided by the sum of s over the chosen experts plus 1e-20, so that sigmoids of 0 give 0.
// Softmax with `normalise` is the softmax of the top_k logits (Mixtral, GPT-OSS). Among equal scores the lower index
// wins, for experts and for groups. NaN counts as the lowest score.
//
// A row whose slot (in the KV cache) is 0 is padding, because slot 0 lies in the page that belongs to no request. For a
// padding row all ids are -1 and all weights 0, so padding loads no expert's weights. The attributes `correction` and
// `expert_scale` say which of the two optional operands are present. The operands come in this order.
//
// If this rank (one process of several) holds only the experts [first_expert, first_expert + local_experts), the choice
// is still among all E. In this case the ids count from first_expert, and an expert of another rank becomes -1 with
// weight 0. The matrices of moe_experts begin with expert first_expert, and moe_experts adds nothing for an id of -1.
#pragma once

#include <cstdint>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

inline constexpr std::int64_t kMaxExperts = 1024;
inline constexpr std::int64_t kMaxExpertsPerToken = 64;

// The node's attributes, sizes and addresses, for the kernels of every device.
struct RouteProblem {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  bool sigmoid = false;
  bool normalise = false;
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
  bool best_two = false;
  float scale = 1.0F;
  std::int64_t first_expert = 0;
  std::int64_t local_experts = 0;
  const std::int32_t* slots = nullptr;  // [tokens]
  const float* correction = nullptr;    // [experts], or null
  const float* expert_scale = nullptr;  // [experts], or null
  std::int32_t* ids = nullptr;          // [tokens, top_k]
  float* weights = nullptr;             // [tokens, top_k]
};
RouteProblem make_route_problem(const BindArgs& args);

extern const ir::OpDecl kMoeRoute;
extern const KernelDef kMoeRouteCpu;
extern const KernelDef kMoeRouteCuda;

}  // namespace tessera
