// Attention over a paged latent cache: multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) in its
// absorbed form, in which all query heads read one row for each token.
//
//   latent_attention(q X[T, H·(C + R)], cache Y[P, page_size, C + R], mut out X[T, H·C]) {group: int, scale: double}
//
// A token's row of the cache is its latent [C], which is key and value, beside its rotated key [R] (latent_store.h). H
// follows from q's columns. A head of q is a query of the latent beside a rotated one (head_linear.h makes the first):
//
//   s_j = scale · q·row_j,    out = Σ softmax(s)_j · row_j[0 … C - 1]
//
// Requests, rows, lengths and pages are those of `attention` (attention.h): row i of request b stands at position
// kv_len - query_len + i and sees the positions up to its own. The plan is an AttentionPlan of the operator's own; rows
// past the last request are not written. In a deterministic forward a row's bits are a function of its query, its
// position and the rows of the cache that it sees.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/op.h"

namespace tessera {

extern const ir::OpDecl kLatentAttention;
extern const KernelDef kLatentAttentionCpu;
extern const KernelDef kLatentAttentionCuda;

// Its operands' sizes.
struct LatentSizes {
  std::int64_t heads = 0;
  std::int64_t width = 0;   // C + R: of a query head and of a row of the cache
  std::int64_t latent = 0;  // C: of a head of the output
  std::int64_t page_size = 0;
};
LatentSizes latent_sizes(const BindArgs& args);

}  // namespace tessera
