// add_gated: what an MLP that every token goes through adds to the experts' sum.
//
//   add_gated(a X[T, N], x X[T, N], gate X[T, 1]) → X[T, N]: a + x · σ(gate),  σ(g) = 1 / (1 + e^-g)
//
// In float32, rounded once.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kAddGated;
extern const KernelDef kAddGatedCpu;
extern const KernelDef kAddGatedCuda;

}  // namespace tessera
