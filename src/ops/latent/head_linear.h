// head_linear: a separate matrix product for each head, for the absorbed matrices of latent attention
// (latent_attention.h):
//
//   out[t, h, :n] = w[h] · x[t, h, :k];   transposed: out[t, h, :n] = w[h]ᵀ · x[t, h, :k]
//
// Sums are float32 and rounded once. In a deterministic forward a row's bits do not depend on the other rows.
#pragma once

#include "tessera/ops/contract/op.h"
#include "tessera/ops/latent/latent_forms.h"

namespace tessera {

// The arguments of the kernels: pointers to elements of one type X, and sizes. Trivially copyable.
struct HeadLinearProblem {
  const std::byte* x;  // X[rows, x_stride]; each head has x_dim >= k values
  const std::byte* w;  // X[heads, n, k]; transposed: X[heads, k, n]
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
  // Selects the rows to compute by the form of attention that their requests use. A block of rows is skipped if none of
  // its requests uses the absorbed form; its rows of `out` are then undefined. By default no request uses the direct
  // form, so nothing is skipped.
  LatentForms forms = {};
  // Rotary embedding: the angles of `table` rotate the `rotated` values that follow the first k values of each head of
  // x. The results are stored after the first n values of the head of out.
  const float* table = nullptr;  // [rows, rotated]
  int rotated = 0;
  bool interleaved = false;
};
Result<std::unique_ptr<BoundOp>> bind_head_linear_cuda(const HeadLinearProblem& p, ir::DType dtype,
                                                       const HeadLinearExtras& extras);

}  // namespace tessera
