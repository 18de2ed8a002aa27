// Elementwise arithmetic. It computes in float32 and rounds once to the storage type X ∈ {f32, bf16, f16}.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// add(a X[*, D], b) → X[*, D] computes a + b, and mul(a X[*, D], b) → X[*, D] computes a · b. b has a's type, or is
// X[D] and is used for every row of a, or is X[1] and is used for every element of a.
extern const ir::OpDecl kAdd;
extern const KernelDef kAddCpu;
extern const KernelDef kAddCuda;
extern const ir::OpDecl kMul;
extern const KernelDef kMulCpu;
extern const KernelDef kMulCuda;

// scale(x X[*]) {factor} → X[*]: x · factor, with the factor as float32
extern const ir::OpDecl kScale;
extern const KernelDef kScaleCpu;
extern const KernelDef kScaleCuda;

// copy(x) → a copy of x, for any dtype
extern const ir::OpDecl kCopy;
extern const KernelDef kCopyCpu;
extern const KernelDef kCopyCuda;

// cast(x X[*]) {dtype = "f32"} → x in that floating-point dtype, rounded to nearest even
extern const ir::OpDecl kCast;
extern const KernelDef kCastCpu;
extern const KernelDef kCastCuda;

}  // namespace tessera
