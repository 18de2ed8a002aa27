// gated_delta_net: a recurrent layer with a state matrix for each head. A gate makes the state decay. Each row corrects
// the state so that the row's key reads a value closer to the row's value (Yang et al., Gated Delta Networks, arXiv
// 2412.06464, in the form of Qwen3-Next and Qwen3.5).
//
//   gated_delta_net(qkv X[T, 2·Hk·Dk + Hv·Dv], ba X[T, 2·Hv], a_log f32[Hv], dt_bias f32[Hv],
//                   mut state f32[P, Hv, Dk, Dv], mut draft_rows X[P, DraftLayout])
//                   {group: int, key_heads: int = Hk, drafts: int = D} → X[T, Hv·Dv]
//   A row of qkv holds Hk query heads, Hk key heads and Hv value heads. A row of ba holds Hv logits b of beta, then Hv
//   logits a of the gate. Value head h reads query and key head h / (Hv / Hk). For each row of a request in order, and
//   each value head with its query q, key k and value v:
//
//     q ← q / √(Σq² + 1e-6) / √Dk      k ← k / √(Σk² + 1e-6)
//     g = -exp(a_log) · softplus(a + dt_bias)      beta = sigmoid(b)
//     S ← exp(g) · S;   S ← S + k ⊗ (beta · (v - Sᵀk));   out = Sᵀq
//
// S [Dk, Dv] is the request's slot of `state`. S starts from zeros if the request's first row in this forward is at
// position 0. A request's drafts are its last rows (ForwardBatch::draft_lens). They are computed on a copy of the
// state, so that the slot afterwards holds the state before the drafts. The keys, the values and the row of ba of each
// draft are stored in the request's slot of `draft_rows`. The request's next forward uses them to advance S over the
// drafts that were accepted (ForwardBatch::accepted_drafts), and then computes its own rows. Without the attribute
// `drafts` there is no operand draft_rows. Everything is computed in float32. If a request has a checkpoint
// (StateCheckpoint), S after the checkpoint's rows is also stored in the checkpoint's slot.
//
// A slot of draft_rows holds the values of D drafts, [D, Hv·Dv], and after them 2·D + 1 places for keys and ba,
// [2·D + 1, Hk·Dk + 2·Hv]. The keys and the ba of the draft at position p of the sequence lie in place p mod (2·D + 1).
// If a request has only one row besides its drafts, the keys of its new drafts and of its accepted drafts therefore lie
// in different places. Each block of a kernel may store its part of the new drafts while other blocks still read the
// accepted drafts' keys.
//
// The recurrent form computes row by row, by the formulas above. The chunked form computes up to kDeltaChunk rows at a
// time. The corrections u of a chunk solve a triangular system, so that nearly all work is matrix products. G_i is the
// sum of g up to row i of the chunk, and n is the chunk's last row:
//
//   u_i = beta_i · (v_i - exp(G_i) · Sᵀk_i - Σ_{j<i} exp(G_i - G_j) · (k_i·k_j) · u_j)
//   out_i = exp(G_i) · Sᵀq_i + Σ_{j<=i} exp(G_i - G_j) · (q_i·k_j) · u_j
//   S ← exp(G_n) · S + Σ_j exp(G_n - G_j) · k_j ⊗ u_j
//
// Chunks begin at a request's first row of the forward, and after a checkpoint. Both forms give the same results except
// for the order of sums. The difference is a few 1e-6 for values around 1. Logits may depend on where a prompt is cut
// into forwards, but only by a difference of this size. In a deterministic forward (ForwardContext) all rows use the
// recurrent form, so a row's bits depend only on the request's rows up to this row. They do not depend on other
// requests or on how the request is cut into forwards.
//
// The operator's plan (StatePlan) writes lengths and slots before every forward. The kernel reads them when it runs, so
// a recorded graph works for any batch. Rows that belong to no request are not written.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kGatedDeltaNet;
extern const KernelDef kGatedDeltaNetCpu;
extern const KernelDef kGatedDeltaNetCuda;

// The layout of a slot of draft_rows.
struct DraftLayout {
  int drafts;  // D
  int keys;    // Hk·Dk
  int gates;   // 2·Hv; a draft's row of ba follows its keys
  int values;  // Hv·Dv

  constexpr int key_places() const { return 2 * drafts + 1; }
  constexpr int size() const { return drafts * values + key_places() * (keys + gates); }
  // values_at() returns where in a slot the values of draft `number` begin, and keys_at() where the keys of the draft
  // at `position` begin. Both offsets count elements.
  constexpr int values_at(int number) const { return number * values; }
  constexpr int keys_at(int position) const { return drafts * values + position % key_places() * (keys + gates); }
};

inline constexpr std::int64_t kDeltaChunk = 64;  // rows of a chunk
inline constexpr float kDeltaNormEps = 1e-6f;    // added to the sums of squares of q and k
inline constexpr double kSoftplusLinear = 20.0;  // softplus(x) is x if x is above this number, as in PyTorch

}  // namespace tessera
