// moe_experts: the feed-forward layers of the experts that moe_route chose, added up for each token.
//
//   moe_experts(x X[T, H], ids i32[T, K], weights f32[T, K], gate_up X[E, 2I, H], down X[E, H, I],
//               (gate_up_bias X[E, 2I]), (down_bias X[E, H]), (gate_up_scale), (down_scale), …)
//       {activation = "silu", limit = 0, gate_up_bias = false, down_bias = false, mxfp4 = false, routed_experts = E,
//        quantised = false, inputs = "plain", …}
//       → y X[T, H]
//
//   y[t] = Σ_k weights[t, k] · (down[e] · a(gate_up[e] · x[t] + gate_up_bias[e]) + down_bias[e]),   e = ids[t, k]
//
// T is the number of tokens, K the number of experts per token, E the number of experts, H the hidden size, I the
// intermediate size and X the type of x. The first I rows of gate_up[e] give g, and the other rows give u. a(g, u) is:
//   "silu"            X(silu(g)) · u
//   "gelu_tanh"       X(gelu(g)) · u, with the tanh form of GELU
//   "clamped_swiglu"  g' · sigmoid(1.702 g') · (u' + 1), g' = min(g, limit), u' = u cut to ±limit (GPT-OSS)
//
// If mxfp4 is true, the matrices have 4 bits per value (OCP Microscaling Formats 1.0): gate_up u8[E, 2I, H/2] and down
// u8[E, H, I/2] hold two values per byte, the first in its lower half. A value has a sign, two bits of exponent and one
// of mantissa: ±0, 0.5, 1, 1.5, 2, 3, 4 or 6. 32 neighbouring values of a row share a factor 2^(s - 127). gate_up_scale
// u8[E, 2I, H/32] and down_scale u8[E, H, I/32] hold s; s = 255 makes the 32 values NaN. The weights stay packed in
// memory: a kernel converts them to X where it multiplies.
//
// If quantised is true, the matrices have the form of quantised_matrix.h, with the experts' rows stacked: gate_up u8[E
// · 2I, …] and down u8[E · H, …]. After the biases come the optional operands: first the scales, factor and zeros of
// gate_up, if its format has them, and then those of down. The attributes are those of quantised_matrix.h, except
// `groups`. They describe both matrices. The attributes down_values, down_scales, down_group_rows and down_group_cols,
// if present, replace values, scales, group_rows and group_cols for down. If one matrix has GGUF's blocks, both have.
// No block of scales contains rows of two experts. The attribute inputs is "plain" or, with blocks of GGUF, "block". As
// in quantised_linear, "block" allows x and a() to be rounded to int8 with one scale for each 32 columns.
//
// No token is dropped, no matter how many tokens choose one expert. An id outside [0, E) names no expert and adds
// nothing: a row with only such ids is 0, even if x holds NaN. Matrix products and the results of a() are rounded to X;
// the sum over k is in float32, in the order of k, and rounded once. E is at most kMaxExperts (moe_route.h). The
// attributes gate_up_bias, down_bias, mxfp4 and quantised say which of the optional operands are present. The operands
// come in this order.
//
// routed_experts (≥ E) is the number of experts that the router chose among. It exceeds E if this rank (one process of
// several) holds only a part of these experts. routed_experts changes no result, only the choice of kernels. About
// T · K · E / routed_experts of the T · K pairs (token, k) name an expert of this rank. This estimate decides whether
// kernels for many rows per expert are used. The number T · K of all pairs decides whether kernels for one or a few
// tokens, or kernels that stream weights, are used. The scratch fits all pairs.
//
// moe_experts is one operator and not a chain (sort, two grouped matmuls, activation, sum) for three reasons. First, a
// graph would have to plan memory for the intermediate values [T · K, 2I] and [T · K, H] at their worst-case size; here
// they are workspace. Second, no other operator uses rows sorted by expert, so there is nothing to fuse with. Third,
// one operator can choose its algorithm by size; for a few rows, for example, it does not sort.
//
// In a deterministic forward a row's bits do not depend on the other rows.
#pragma once

#include <cstdint>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

enum class GatedActivation : std::uint8_t { kSwiglu, kGeglu, kClampedSwiglu };

// The factor of g' inside the sigmoid of clamped_swiglu.
inline constexpr float kSwigluAlpha = 1.702F;

// The number of neighbouring values that share a scale factor in mxfp4.
inline constexpr std::int64_t kMxfp4Block = 32;

// The node's attributes, sizes and addresses, for the kernels of every device.
struct ExpertsProblem {
  std::int64_t tokens = 0;
  std::int64_t top_k = 0;
  std::int64_t experts = 0;
  std::int64_t routed_experts = 0;  // ≥ `experts`
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;  // I: this rank's part of the intermediate size
  GatedActivation activation = GatedActivation::kSwiglu;
  float limit = 0;                        // the limit of clamped_swiglu
  ir::DType dtype = ir::DType::kFloat32;  // X
  const std::byte* x = nullptr;
  const std::int32_t* ids = nullptr;
  const float* weights = nullptr;
  const std::byte* gate_up = nullptr;
  const std::byte* down = nullptr;
  const std::byte* gate_up_bias = nullptr;      // null: no bias
  const std::byte* down_bias = nullptr;         // null: no bias
  bool mxfp4 = false;                           // gate_up and down hold two 4-bit values per byte, with scales
  const std::uint8_t* gate_up_scale = nullptr;  // null: no mxfp4
  const std::uint8_t* down_scale = nullptr;     // null: no mxfp4
  bool quantised = false;                       // gate_up and down are the quantised matrices below
  bool rounds_inputs = false;                   // only with blocks of GGUF: inputs may be rounded to int8
  QuantisedMatrix gate_up_matrix{};
  QuantisedMatrix down_matrix{};
  std::byte* y = nullptr;
};
ExpertsProblem make_experts_problem(const BindArgs& args);

extern const ir::OpDecl kMoeExperts;
extern const KernelDef kMoeExpertsCpu;
extern const KernelDef kMoeExpertsCuda;

}  // namespace tessera
