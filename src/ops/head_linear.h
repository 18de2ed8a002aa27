// head_linear: a matrix product of its own for each head, as the absorbed matrices of latent attention need.
//
//   head_linear(x X[T, H·Dx], w X[H, N, K], mut out X[T, H·Do]) {transposed = false}        K <= Dx, N <= Do
//
//   out[t, h, :N] = w[h] · x[t, h, :K];   transposed: w is X[H, K, N], and out[t, h, :N] = w[h]ᵀ · x[t, h, :K]
//
// The first K of a head's Dx values are read and the first N of its Do values are written; the others are another
// operator's. Sums are float32 and rounded once. In a deterministic forward a row's bits do not depend on the other
// rows.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/latent_forms.h"
#include "tessera/ops/op.h"

namespace tessera {

extern const ir::OpDecl kHeadLinear;
extern const KernelDef kHeadLinearCpu;
extern const KernelDef kHeadLinearCuda;

// Pointers and sizes as kernels take them. Trivially copyable.
struct HeadLinearProblem {
  const std::byte* x;  // X[rows, heads, x_dim]
  const std::byte* w;  // X[heads, n, k], transposed X[heads, k, n]
  std::byte* out;      // X[rows, heads, out_dim]
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t x_dim;
  std::int64_t out_dim;
  std::int64_t n;
  std::int64_t k;
  bool transposed;
  bool w_is_weight;    // TensorView::is_weight
  bool deterministic;  // of the forward
  // On CUDA, blocks of rows without one of a request in the absorbed form may be left out: their rows of `out` hold
  // anything. By default there are none.
  LatentForms forms = {};
};
HeadLinearProblem head_linear_problem(const BindArgs& args);

// For operators that contain one. `dtype` is X.
Result<std::unique_ptr<BoundOp>> bind_head_linear_cpu(const HeadLinearProblem& p, ir::DType dtype, Device& device,
                                                      DeviceAddress workspace);
std::size_t head_linear_cpu_workspace_bytes(const Device& device);
Result<std::unique_ptr<BoundOp>> bind_head_linear_cuda(const HeadLinearProblem& p, ir::DType dtype);

}  // namespace tessera
