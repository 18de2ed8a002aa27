// A matrix product of its own for each head, as the absorbed matrices of latent attention need (latent_attention.h):
//
//   out[t, h, :n] = w[h] · x[t, h, :k];   transposed: out[t, h, :n] = w[h]ᵀ · x[t, h, :k]
//
// Sums are float32 and rounded once. In a deterministic forward a row's bits do not depend on the other rows.
#pragma once

#include "tessera/ops/contract/op.h"
#include "tessera/ops/latent/latent_forms.h"

namespace tessera {

// Pointers and sizes as kernels take them, of elements of one type X. Trivially copyable.
struct HeadLinearProblem {
  const std::byte* x;  // X[rows, x_stride], of which heads have x_dim each, at least k
  const std::byte* w;  // X[heads, n, k], transposed X[heads, k, n]
  std::byte* out;      // X[rows, heads, out_dim]; values from n on are not written
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t x_stride;
  std::int64_t x_dim;
  std::int64_t out_dim;
  std::int64_t n;
  std::int64_t k;
  bool transposed;
  bool w_is_weight;    // TensorView::is_weight
  bool deterministic;  // of the forward
};

Result<std::unique_ptr<BoundOp>> bind_head_linear_cpu(const HeadLinearProblem& p, ir::DType dtype, Device& device,
                                                      DeviceAddress workspace);
std::size_t head_linear_cpu_workspace_bytes(const Device& device);

// What the kernels on CUDA do besides.
struct HeadLinearExtras {
  // Blocks of rows without one of a request in the absorbed form are left out: their rows of `out` hold anything. By
  // default there are none.
  LatentForms forms = {};
  // The `rotated` values behind the first k of a head of x are turned by the table's angles, and stored behind the
  // first n of a head of out.
  const float* table = nullptr;  // [rows, rotated]
  int rotated = 0;
  bool interleaved = false;
};
Result<std::unique_ptr<BoundOp>> bind_head_linear_cuda(const HeadLinearProblem& p, ir::DType dtype,
                                                       const HeadLinearExtras& extras);

}  // namespace tessera
