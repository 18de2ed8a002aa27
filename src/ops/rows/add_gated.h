// add_gated adds the gated output of a shared expert (an MLP that processes every token) to the sum of the routed
// experts.
//
//   add_gated(a X[T, N], x X[T, N], gate X[T, 1]) → X[T, N]: a + x · σ(gate),  σ(g) = 1 / (1 + e^-g)
//
// The arithmetic is float32 and the result is rounded once.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kAddGated;
extern const KernelDef kAddGatedCpu;
extern const KernelDef kAddGatedCuda;

}  // namespace tessera
