// linear: y = x · wᵀ + bias + residual, the matrix product of every layer.
//
//   linear(x X[*, K], w X[N, K], (bias X[N]), (residual X[*, N])) → X[*, N]
//     {bias: bool = false, residual: bool = false}
//
// w has the layout of checkpoints: [out_features, in_features], row-major. `bias` and `residual` say which of the two
// optional operands are present. The operands come in this order. Sums are float32 and rounded once. y may use the
// memory of residual, but must not overlap another operand.
//
// On the CPU, our own kernels compute products of few rows and all float16 products, with operands converted to float32
// where needed. oneDNN computes the rest, except bfloat16 products on CPUs without AVX-512. Bits may differ between row
// counts, except in a deterministic forward (ForwardContext). In such a forward sums have one order for all row counts,
// on the CPU and on CUDA.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kLinear;
extern const KernelDef kLinearCpu;
extern const KernelDef kLinearCuda;

}  // namespace tessera
