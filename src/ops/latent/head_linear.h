// head_linear computes a separate matrix product for each row t and head h, for the absorbed matrices of latent
// attention (latent_attention.h):
//
//   out[t, h, :n] = w[h] · x[t, h, :k];   transposed: out[t, h, :n] = w[h]ᵀ · x[t, h, :k]
//
// Sums are float32 and rounded once. In a deterministic forward a row's bits do not depend on the other rows.
#pragma once

#include "tessera/ops/contract/op.h"
#include "tessera/ops/latent/latent_forms.h"

namespace tessera {

// The arguments of the kernels: pointers to elements of one type X, and sizes. The struct is trivially copyable.
struct HeadLinearProblem {
  const std::byte* x;  // X[rows, x_stride]; each head has x_dim >= k values
  const std::byte* w;  // X[heads, n, k], or X[heads, k, n] if transposed
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
  bool deterministic;  // the forward is deterministic
};

Result<std::unique_ptr<BoundOp>> bind_head_linear_cpu(const HeadLinearProblem& p, ir::DType dtype, Device& device,
                                                      DeviceAddress workspace);
std::size_t head_linear_cpu_workspace_bytes(const Device& device);

// Additional work that CUDA's kernels can do.
struct HeadLinearExtras {
  // Says which requests use the absorbed form of latent attention and which use the direct form (latent_attention.h).
  // Only rows of requests in the absorbed form need this product. The kernel skips a block of rows if all its requests
  // use the direct form, and leaves the block's rows of `out` undefined. By default every request uses the absorbed
  // form, so the kernel skips nothing.
  LatentForms forms = {};
  // If `rotated` is not 0, the kernel also applies the rotary embedding. In each head of x, `rotated` values follow the
  // first k values. The kernel rotates them by the angles in `table`, and stores the results after the first n values
  // of the same head of `out`.
  const float* table = nullptr;  // [rows, rotated]
  int rotated = 0;
  bool interleaved = false;
};
Result<std::unique_ptr<BoundOp>> bind_head_linear_cuda(const HeadLinearProblem& p, ir::DType dtype,
                                                       const HeadLinearExtras& extras);

}  // namespace tessera
