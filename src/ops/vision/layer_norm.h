// Layer normalisation (Ba et al., arXiv 1607.06450), computed in float32 and rounded once:
//   layer_norm(x) = (x - mean(x)) / √(mean((x - mean(x))²) + eps) · w + b
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// layer_norm(x X[*, D], w X[D], b X[D]) {eps} → X[*, D]
extern const ir::OpDecl kLayerNorm;
extern const KernelDef kLayerNormCpu;
extern const KernelDef kLayerNormCuda;

}  // namespace tessera
