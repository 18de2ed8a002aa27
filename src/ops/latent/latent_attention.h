// latent_attention computes multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) over a paged cache
// of latents. The cache has one row for each token. From this row, the operator makes the token's keys and values for
// all heads.
//
//   latent_attention(q X[T, W], table f32[T, R], cache Y[P, page_size, C + R], keys X[H, N, C], values X[H, V, C],
//                    mut out X[T, H·V]) {group: int, scale: double, interleaved = false}
//
// There are T rows, P pages and H heads. A token's row of the cache holds its latent [C] and then its rotated key [R];
// all heads share the row (latent_store.h). A row of q has W elements, and the first H·(N + R) are its query heads. The
// first N elements of a query head are multiplied by keys that are made from latents. The other R elements are rotated
// by the row's angles (rotary.h) and rounded to X. Two forms give the same results except for rounding (row_j is the
// cache row of position j, and a ‖ b concatenates a and b):
//
//   absorbed: query = keysᵀ·q[: N] ‖ rotary(q[N :]),   s_j = scale · query·row_j
//             out = values · (Σ softmax(s)_j · row_j[: C])
//   direct:   k_j = keys · row_j[: C] ‖ row_j[C :],   v_j = values · row_j[: C]
//             s_j = scale · (q[: N] ‖ rotary(q[N :]))·k_j,   out = Σ softmax(s)_j · v_j
//
// The absorbed form reads each cache row once for all heads, and is the faster form if a request has few rows. The
// direct form needs a third of the absorbed form's operations, but first makes the keys and values of every token that
// the request sees, including tokens of earlier forwards. The kernel chooses the form of each request. A deterministic
// forward only uses the absorbed form.
//
// Requests, rows, lengths and pages are defined as in `attention` (attention.h): row i of request b stands at position
// kv_len - query_len + i and sees the positions up to its own. The operator has an AttentionPlan of its own. The
// content of rows of `out` after the last request's rows is undefined. In a deterministic forward a row's bits are a
// function of its query, its position and the rows of the cache that it sees.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/latent/head_linear.h"

namespace tessera {

extern const ir::OpDecl kLatentAttention;
extern const KernelDef kLatentAttentionCpu;
extern const KernelDef kLatentAttentionCuda;

// The sizes of the operands.
struct LatentSizes {
  std::int64_t heads = 0;
  std::int64_t width = 0;   // C + R: elements of a query head in the absorbed form, and of a row of the cache
  std::int64_t latent = 0;  // C
  std::int64_t key = 0;     // N
  std::int64_t value = 0;   // V
  std::int64_t page_size = 0;
};
LatentSizes latent_sizes(const BindArgs& args);

// These two functions describe the two products of the absorbed form. The first product makes the unrotated part of the
// queries and writes it to query X[T, H, C + R]. The second product turns latents X[T, H, C] into out.
HeadLinearProblem latent_query_problem(const BindArgs& args, DeviceAddress query);
HeadLinearProblem latent_values_problem(const BindArgs& args, DeviceAddress latents);

}  // namespace tessera
