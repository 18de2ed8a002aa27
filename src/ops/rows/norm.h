// RMS normalisation. The mean of squares is computed in float32. As in Hugging Face's models, the normalised value is
// rounded to the storage type X before it is multiplied by the weight:
//   rms_norm(x) = X(x · 1/√(mean(x²) + eps)) · w
// With round_once, which Gemma 4 has, the product is rounded once:
//   rms_norm(x) = X(x · 1/√(mean(x²) + eps) · w)
// With unit_offset, which Gemma 2 and 3 and Qwen3-Next have, the product is rounded once too, and w holds the weight
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
//   sum = X(x + residual), normed = rms_norm(sum, w). Native form: add, rms_norm.
extern const ir::OpDecl kAddRmsNorm;
extern const KernelDef kAddRmsNormCpu;
extern const KernelDef kAddRmsNormCuda;
// One kernel for an rms_norm and the add_rms_norm that adds the result of the first to a residual. The two follow each
// other in models that also normalise the outputs of attention and of the MLP.
extern const JoinedKernelDef kNormTwiceCuda;

// head_norm(x X[T, H·D], w X[D]) {eps, round_once = false, unit_offset = false} → X[T, H·D]
//   Applies rms_norm to each head's D values. Native form: reshape, rms_norm, reshape.
extern const ir::OpDecl kHeadNorm;
extern const KernelDef kHeadNormCpu;
extern const KernelDef kHeadNormCuda;

}  // namespace tessera
