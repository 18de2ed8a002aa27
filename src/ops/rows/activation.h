// Activations of feed-forward layers. The arithmetic is float32. In silu_mul and gelu_mul, the activation of a row's
// first half is rounded to the storage type before it is multiplied by the second half, as in Hugging Face's models. So
// a fused operator gives the same bits as its native form, a sequence of simpler operators.
//   silu(x) = x / (1 + e^-x)
//   gelu(x) = x · Φ(x), where Φ is the distribution function of the standard normal distribution;
//             with tanh: x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))
//   quick_gelu(x) = x / (1 + e^-1.702x), an approximation of gelu(x)
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// silu_mul(x X[*, 2I]) → X[*, I]: X(silu(x[:I])) · x[I:]. Native form: split, silu, mul.
extern const ir::OpDecl kSiluMul;
extern const KernelDef kSiluMulCpu;
extern const KernelDef kSiluMulCuda;

// gelu_mul(x X[*, 2I]) {tanh = true} → X[*, I]: X(gelu(x[:I])) · x[I:]. Native form: split, gelu, mul.
extern const ir::OpDecl kGeluMul;
extern const KernelDef kGeluMulCpu;
extern const KernelDef kGeluMulCuda;

// silu(x X[*]) → X[*], gelu(x X[*]) {tanh = true} → X[*], quick_gelu(x X[*]) → X[*]
extern const ir::OpDecl kSilu;
extern const KernelDef kSiluCpu;
extern const KernelDef kSiluCuda;
extern const ir::OpDecl kGelu;
extern const KernelDef kGeluCpu;
extern const KernelDef kGeluCuda;
extern const ir::OpDecl kQuickGelu;
extern const KernelDef kQuickGeluCpu;
extern const KernelDef kQuickGeluCuda;

// softcap(x X[*]) {cap > 0} → X[*]: cap · tanh(x / cap)
extern const ir::OpDecl kSoftcap;
extern const KernelDef kSoftcapCpu;
extern const KernelDef kSoftcapCuda;

}  // namespace tessera
