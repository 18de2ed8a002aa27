// segment_attention computes the attention of a vision tower. Each row attends to a range of rows of the same forward,
// without a causal mask. The ranges are data, so that one recorded graph accepts any packing of images and windows.
//
//   segment_attention(qkv X[S, 3·H·D], ranges i32[S, 2]) {heads = H} → X[S, H·D]
//     For each head, out[s] = softmax(q[s] · k[r]ᵀ / √D) · v[r] with r from ranges[s, 0] to ranges[s, 1] - 1. out[s] is
//     zero for an empty range. A row of qkv has the heads' queries, then their keys, then their values. Ranges are
//     clipped to [0, S). D is at most kMaxSegmentHeadDim and a multiple of 4.
//
// Sums are float32. The order of additions, and therefore a row's last bits, may depend on S and on where the row and
// its range lie in the forward, but never on other ranges. In a deterministic forward the order does not depend on S
// either. Rows that are in no range (padding) may hold anything.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

inline constexpr std::int64_t kMaxSegmentHeadDim = 128;

extern const ir::OpDecl kSegmentAttention;
extern const KernelDef kSegmentAttentionCpu;
extern const KernelDef kSegmentAttentionCuda;

}  // namespace tessera
