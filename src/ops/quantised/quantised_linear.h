// quantised_linear: y = x · wᵀ + bias + residual, where w is a matrix of small values with scales.
//
//   quantised_linear(x X[*, K], w u8, scales, (factor), (zeros), (groups), (bias X[N]), (residual X[*, N])) → X[*, N]
//     {values, scales = "f32", group_rows, group_cols, factor = zeros = groups = false, bias = residual = false,
//      inputs = "plain"}
//
// quantised_matrix.h describes the operands from w to groups, and the attributes about them. The attributes `bias` and
// `residual` say which of the operands `bias` and `residual` are present. `bias` comes first. Sums are float32 and
// rounded once. y may be the same memory as residual, and overlaps no other operand.
//
// `inputs` is the rounding of x for which the checkpoint was made: "plain" (none), "token" (one scale for a row) or
// "group" (one scale for each 128 columns of a row). "token" and "group" round to the type of w's values. A kernel may
// round x in this way, or with more scales, because products of rounded x are faster on some devices. It may also use x
// unrounded, which is more exact. The CPU's kernel does this. If w has GGUF's blocks, "block" allows x to be rounded to
// int8 with one scale for each 32 columns of a row, as in llama.cpp. With "plain", x is not rounded, and is multiplied
// by the numbers that the blocks of such a w stand for.
//
// The operands from w to groups are weights of the model: a kernel may read them before the preceding kernels have
// ended. They stay packed in memory; a kernel converts values where it multiplies. In a deterministic forward a row's
// bits do not depend on the number of rows.
#pragma once

#include <vector>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kQuantisedLinear;
extern const KernelDef kQuantisedLinearCpu;
extern const KernelDef kQuantisedLinearCuda;
// Returns CUDA's kernels that also compute the gate after a quantised_linear, or the norm or gate before it.
const std::vector<JoinedKernelDef>& joined_quantised_kernels();

}  // namespace tessera
