// Gates on the output of attention or of a delta net, before the output projection. Arithmetic is in float32.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// gated_norm(x X[T, H·D], z X[T, W], w f32[D]) {eps, column = 0} → X[T, H·D]
//   For each head's D values, computes X(X(x · 1/√(mean(x²) + eps)) · w · silu(z[column + …])), where X(…) rounds to
//   type X. Only the H·D values of z from `column` on are read, so z may be the result of a joint projection.
extern const ir::OpDecl kGatedNorm;
extern const KernelDef kGatedNormCpu;
extern const KernelDef kGatedNormCuda;

// sigmoid_gate(x X[*], gate: as x) → X[*]: x · X(1 / (1 + e^-gate)), where X(…) rounds to type X
extern const ir::OpDecl kSigmoidGate;
extern const KernelDef kSigmoidGateCpu;
extern const KernelDef kSigmoidGateCuda;

}  // namespace tessera
