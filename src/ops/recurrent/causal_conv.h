// causal_conv: the short convolution before a recurrent layer, depthwise and causal, followed by silu.
//
//   causal_conv(x X[T, W], w X[C, K], mut state X[P, K - 1, C]) {group: int} → X[T, C]
//   y[t, c] = silu(Σ_j w[c, j] · x[t - (K - 1) + j, c])
//
// Only the first C of a row's W values are read, so that x may be a joint projection. The rows before a request's first
// one in this forward stand in its slot of `state`, oldest first; before position 0 they are zeros, and the slot is not
// read. Afterwards the slot has the request's last K - 1 rows.
//
// The operator's plan (StatePlan) writes lengths and slots before every forward; the kernel reads them when it runs.
// Rows of no request are not written. A row's bits are a function of the K rows that it sees: not of the other
// requests, nor of how a request is cut into forwards.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kCausalConv;
extern const KernelDef kCausalConvCpu;
extern const KernelDef kCausalConvCuda;

// Taps of a convolution, at most.
inline constexpr std::int64_t kMaxConvTaps = 8;

}  // namespace tessera
