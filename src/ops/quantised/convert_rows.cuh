// A kernel that converts x to E4M3 or to fixed point for a quantised_linear. It is needed if no operator before the
// linear writes converted rows.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/row_results.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kConvertingThreads = 256;

// Converts x [m, y.n]. Sixteen threads convert a group of columns of a row. gridDim.x is m. gridDim.y is the number of
// blocks of kConvertingThreads threads that the groups of a row need.
template <class T, class Results>
__global__ void __launch_bounds__(kConvertingThreads) convert_rows(const T* x, const Results y) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kConvertingThreads + threadIdx.x) * 8;
  Pack<T, 8> values{};
  if (column < y.n) values = load_pack<T, 8>(x + row * y.n + column);
  y.store(row, column, values);
}

// Makes the operator that converts p.x. Rows is RoundedRows or FixedRows.
template <class T, class Rows>
std::unique_ptr<BoundOp> make_converting(const QuantisedCall& p, const Rows& rows) {
  const auto y = results_in<T>(rows, p.k);
  const std::int64_t threads = ceil_div(p.k, std::int64_t{kConvertedGroup}) * (kConvertedGroup / 8);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(p.m),
                                       static_cast<unsigned>(ceil_div(threads, std::int64_t{kConvertingThreads}))),
                          .block = dim3(kConvertingThreads)};
  return make_cuda_op(name_by_form<Rows>("quantised_linear, rounding", "quantised_linear, to fixed point"),
                      [=, x = reinterpret_cast<const T*>(p.x)](cudaStream_t stream) {
                        launch_early(convert_rows<T, std::remove_const_t<decltype(y)>>, shape, stream, x, y);
                      });
}

}  // namespace tessera::cuda::quantised
