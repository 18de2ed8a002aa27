// The arguments of one linear for its kernels on any device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/contract/op.h"

namespace tessera {

// y[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] + residual[m, n], all of one dtype. bias and residual may be null. If `gelu`
// is set, y = gelu(x · wᵀ + bias), the bias is present, and there is no residual. Only bind_cublaslt() supports this
// case (linear_cuda.h).
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
  std::int64_t workers;  // number of threads or multiprocessors that the kernel may use; at least 1
  bool gelu = false;     // apply GELU in the tanh form to the unrounded sum
};

LinearProblem make_linear_problem(const BindArgs& args);

}  // namespace tessera
