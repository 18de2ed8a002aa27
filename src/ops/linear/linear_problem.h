// One linear as its kernels see it, on any device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/contract/op.h"

namespace tessera {

// y[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] + residual[m, n], all of one dtype. bias and residual may be null. With
// `gelu`, which bind_cublaslt() alone takes (linear_cuda.h), y = gelu(x · wᵀ + bias): there is a bias and no residual.
struct LinearProblem {
  const std::byte* x;
  const std::byte* w;
  const std::byte* bias;
  const std::byte* residual;
  std::byte* y;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  ir::DType dtype;
  std::byte* workspace;
  std::int64_t workers;  // threads or multiprocessors that the kernel may expect; at least 1
  bool gelu = false;     // the tanh form, of the sum before it is rounded
};

LinearProblem make_linear_problem(const BindArgs& args);

}  // namespace tessera
