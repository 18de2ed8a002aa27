// The kernel of elementwise operators: y[i] = To(f(float(x[i]))) for all elements, where f is a small device functor.
#pragma once

#include <algorithm>
#include <memory>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera::cuda {

// Computes y = f(x) for n elements. Each thread takes one pack. The last pack may have fewer than N elements.
template <class From, class To, int N, class F>
__global__ void unary(const From* x, To* y, std::int64_t n, F f) {
  const std::int64_t first = flat_item() * N;
  if (first + N <= n) {
    const Pack<From, N> in = load_pack<From, N>(x + first);
    Pack<To, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<To>(f(to_float(in.at[j])));
    store_pack(y + first, out);
  } else {
    for (std::int64_t i = first; i < n; ++i) y[i] = from_float<To>(f(to_float(x[i])));
  }
}

// Makes the operator for f. `name` is a string literal.
template <class From, class To, class F>
std::unique_ptr<BoundOp> make_unary(const BindArgs& args, const char* name, F f) {
  constexpr int kElements = std::min(kPackSize<From>, kPackSize<To>);
  const From* x = args.operands[0].as<From>();
  To* y = args.results[0].as<To>();
  const std::int64_t n = args.operands[0].elements();
  const LaunchShape shape = flat_shape(ceil_div(n, kElements));
  return make_cuda_op(name,
                      [=](cudaStream_t stream) { launch(unary<From, To, kElements, F>, shape, stream, x, y, n, f); });
}

template <class F>
Result<std::unique_ptr<BoundOp>> bind_unary(const BindArgs& args, const char* name, F f) {
  return dispatch_dtype(args.operands[0].dtype, name,
                        [&]<class T>() -> Result<std::unique_ptr<BoundOp>> { return make_unary<T, T>(args, name, f); });
}

}  // namespace tessera::cuda
