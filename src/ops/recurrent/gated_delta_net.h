// gated_delta_net: a recurrent layer whose state is a matrix for each head, which forgets by a gate and is corrected
// towards each new value (Yang et al., Gated Delta Networks, arXiv 2412.06464, as Qwen3-Next and Qwen3.5 have it).
//
//   gated_delta_net(qkv X[T, 2·Hk·Dk + Hv·Dv], ba X[T, 2·Hv], a_log f32[Hv], dt_bias f32[Hv],
//                   mut state f32[P, Hv, Dk, Dv]) {group: int, key_heads = Hk} → X[T, Hv·Dv]
//   A row of qkv holds Hk query heads, Hk key heads and Hv value heads; a row of ba Hv logits of beta, then Hv of the
//   gate. Value head h reads query and key head h / (Hv / Hk). For each row of a request in order, and each value head:
//
//     q ← q / √(Σq² + 1e-6) / √Dk      k ← k / √(Σk² + 1e-6)
//     g = -exp(a_log) · softplus(a + dt_bias)      beta = sigmoid(b)
//     S ← exp(g) · S;   S ← S + k ⊗ (beta · (v - Sᵀk));   out = Sᵀq
//
// S [Dk, Dv] is the request's slot of `state`, from zeros where its first row stands at position 0. All of it is
// computed in float32.
//
// Recurrent form: row by row, as above. Chunked form: up to kDeltaChunk rows at a time, whose corrections u solve a
// triangular system, so that nearly all work is matrix products. With G_i the sum of g up to row i of the chunk:
//
//   u_i = beta_i · (v_i - exp(G_i) · Sᵀk_i - Σ_{j<i} exp(G_i - G_j) · (k_i·k_j) · u_j)
//   out_i = exp(G_i) · Sᵀq_i + Σ_{j<=i} exp(G_i - G_j) · (q_i·k_j) · u_j
//   S ← exp(G_n) · S + Σ_j exp(G_n - G_j) · k_j ⊗ u_j
//
// Chunks begin at a request's first row of the forward. Both forms give the same up to the order of sums, which at
// values around 1 is a few 1e-6, so that where a prompt is cut moves its logits by so much and no more. In a
// deterministic forward (ForwardContext) all rows take the recurrent form, and a row's bits are a function of the
// request's rows up to it alone: neither of other requests nor of how this one is cut into forwards.
//
// The operator's plan (StatePlan) writes lengths and slots before every forward; the kernel reads them when it runs, so
// a recorded graph serves any batch. Rows of no request are not written.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kGatedDeltaNet;
extern const KernelDef kGatedDeltaNetCpu;
extern const KernelDef kGatedDeltaNetCuda;

inline constexpr std::int64_t kDeltaChunk = 64;  // rows
inline constexpr float kDeltaNormEps = 1e-6f;    // of the lengths of q and k
inline constexpr double kSoftplusLinear = 20.0;  // above it softplus(x) is x, as in PyTorch

}  // namespace tessera
