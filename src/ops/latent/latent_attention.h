// Attention over a paged latent cache: multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), in
// which the keys and values of all heads are made from one row for each token.
//
//   latent_attention(q X[T, W], table f32[T, R], cache Y[P, page_size, C + R], keys X[H, N, C], values X[H, V, C],
//                    mut out X[T, H·V]) {group: int, scale: double, interleaved = false}
//
// A token's row of the cache is its latent [C] beside its rotated key [R], which all heads share (latent_store.h). The
// first H·(N + R) of a row's W values are its query heads: N that meet the keys made from latents, then R that are
// rotated by the row's angles (rotary.h) and rounded to X. Two forms give the same up to rounding:
//
//   absorbed: query = keysᵀ·q[: N] beside rotary(q[N :]),   s_j = scale · query·row_j
//             out = values · (Σ softmax(s)_j · row_j[: C])
//   direct:   k_j = keys · row_j[: C] beside row_j[C :],   v_j = values · row_j[: C]
//             s_j = scale · (q[: N] beside rotary(q[N :]))·k_j,   out = Σ softmax(s)_j · v_j
//
// The absorbed form reads one row for all heads, which decides where a request has few rows. The direct one has a third
// of the operations, but makes keys and values of every token that is seen, fresh or from earlier forwards. Which form
// a request takes is the kernel's choice; a deterministic forward knows the absorbed form alone.
//
// Requests, rows, lengths and pages are those of `attention` (attention.h): row i of request b stands at position
// kv_len - query_len + i and sees the positions up to its own. The plan is an AttentionPlan of the operator's own; rows
// past the last request hold anything. In a deterministic forward a row's bits are a function of
// its query, its position and the rows of the cache that it sees.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/linear/head_linear.h"

namespace tessera {

extern const ir::OpDecl kLatentAttention;
extern const KernelDef kLatentAttentionCpu;
extern const KernelDef kLatentAttentionCuda;

// Its operands' sizes.
struct LatentSizes {
  std::int64_t heads = 0;
  std::int64_t width = 0;   // C + R: of a query head and of a row of the cache
  std::int64_t latent = 0;  // C
  std::int64_t key = 0;     // N
  std::int64_t value = 0;   // V
  std::int64_t page_size = 0;
};
LatentSizes latent_sizes(const BindArgs& args);

// The absorbed form's products: of queries, without what is rotated, into query X[T, H, C + R]; of latents X[T, H, C]
// into out.
HeadLinearProblem latent_query_problem(const BindArgs& args, DeviceAddress query);
HeadLinearProblem latent_values_problem(const BindArgs& args, DeviceAddress latents);

}  // namespace tessera
