// causal_conv: the short convolution before a recurrent layer, depthwise and causal, followed by silu.
//
//   causal_conv(x X[T, W], w X[C, K], mut state X[P, K - 1 + D, C]) {group: int, drafts: int = D} → X[T, C]
//   y[t, c] = silu(Σ_j w[c, j] · x[t - (K - 1) + j, c])
//
// T is the number of rows, C the number of channels, K the number of taps and P the number of slots. Only the first C
// of a row's W values are read, so that x may be the result of a joint projection. A slot of `state` holds the K - 1
// rows of a request that precede its drafts (ForwardBatch::draft_lens), oldest first, and then up to D drafts. The
// request's next forward continues after the K - 1 rows that end with the last accepted draft
// (ForwardBatch::accepted_drafts). If a request starts at position 0, these rows are zeros, and its slot is not read.
//
// If a request has a checkpoint (StateCheckpoint), the rows before it are also stored in the checkpoint's slot.
//
// The operator's plan (StatePlan) writes lengths and slots before every forward. The kernel reads them when it runs.
// Rows that belong to no request are not written. A row's bits depend only on the K rows that it reads, not on other
// requests or on how a request is cut into forwards.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kCausalConv;
extern const KernelDef kCausalConvCpu;
extern const KernelDef kCausalConvCuda;

// The maximum number of taps that a convolution can have.
inline constexpr std::int64_t kMaxConvTaps = 8;

}  // namespace tessera
