// RMS normalisation. The mean of squares is computed in float32. As in Hugging Face's models, the normalised value is
// rounded to the storage type X before it is multiplied by the weight:
//   rms_norm(x) = X(x · 1/√(mean(x²) + eps)) · w
// If round_once is set (Gemma 4), the product is rounded once:
//   rms_norm(x) = X(x · 1/√(mean(x²) + eps) · w)
// If unit_offset is set (Gemma 2, Gemma 3 and Qwen3-Next), the product is rounded once too, and w holds the weight
// minus one:
//   rms_norm(x) = X(x · 1/√(mean(x²) + eps) · (1 + w))
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// rms_norm(x X[*, D], w X[D]) {eps, round_once = false, unit_offset = false} → X[*, D]
extern const ir::OpDecl kRmsNorm;
extern const KernelDef kRmsNormCpu;
extern const KernelDef kRmsNormCuda;

// add_rms_norm(x X[*, D], residual X[*, D], w X[D]) {eps, round_once = false, unit_offset = false}
//     → normed X[*, D], sum X[*, D]
//   sum = X(x + residual), normed = rms_norm(sum, w). Native form (simpler operators for this): add, rms_norm.
extern const ir::OpDecl kAddRmsNorm;
extern const KernelDef kAddRmsNormCpu;
extern const KernelDef kAddRmsNormCuda;
// One kernel for an rms_norm and the add_rms_norm after it, which adds the normalised result to a residual. Models that
// also normalise the outputs of attention and of the MLP have this sequence of operators.
extern const JoinedKernelDef kNormTwiceCuda;

// head_norm(x X[T, H·D], w X[D]) {eps, round_once = false, unit_offset = false} → X[T, H·D]
//   Applies rms_norm to each head's D values. Native form: reshape, rms_norm, reshape.
extern const ir::OpDecl kHeadNorm;
extern const KernelDef kHeadNormCpu;
extern const KernelDef kHeadNormCuda;

}  // namespace tessera
