// Gates on the output of attention or of a delta net, before the output projection. Arithmetic is in float32.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// gated_norm(x X[T, H·D], z X[T, W], w f32[D]) {eps, column = 0} → X[T, H·D]
//   Element i of a row is X(X(x[i] · 1/√(m + eps)) · w[i mod D] · silu(z[column + i])). X(…) rounds to type X, and m is
//   the mean of x² over element i's head. No other columns of z are read, so z may be the result of a joint projection.
extern const ir::OpDecl kGatedNorm;
extern const KernelDef kGatedNormCpu;
extern const KernelDef kGatedNormCuda;

// sigmoid_gate(x X[*], gate: as x) → X[*]: x · X(1 / (1 + e^-gate)), where X(…) rounds to type X
extern const ir::OpDecl kSigmoidGate;
extern const KernelDef kSigmoidGateCpu;
extern const KernelDef kSigmoidGateCuda;

}  // namespace tessera
