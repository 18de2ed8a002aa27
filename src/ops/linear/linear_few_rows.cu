#include <algorithm>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/linear/linear_cuda.h"

namespace tessera {
namespace {

using cuda::kWarp;

constexpr int kWarps = 8;  // warps in a block

struct Shape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t first_row;  // first row of x that the launch computes
  int split;               // number of warps that share one row of w; a divisor of kWarps
};

// Computes y for a few rows. A group of `split` warps processes one row of w and kRows rows of x. A lane's loads are N
// elements wide.
template <class T, int kRows, int N>
__global__ void __launch_bounds__(kWarps* kWarp)
    few_rows(const T* x, const T* w, const T* bias, const T* residual, T* y, Shape shape) {
  __shared__ float partial[kWarps][kRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int part = warp % shape.split;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kWarps + warp) / shape.split;  // column of y
  const std::int64_t first_row = shape.first_row + static_cast<std::int64_t>(blockIdx.y) * kRows;

  const T* w_row = w + column * shape.k;
  const std::int64_t first = static_cast<std::int64_t>(part * kWarp + lane) * N;
  const std::int64_t step = static_cast<std::int64_t>(shape.split) * kWarp * N;
  cuda::let_next_begin();
  cuda::wait_for_previous();

  float sum[kRows] = {};
  if (column < shape.n) {
#pragma unroll 4
    for (std::int64_t i = first; i < shape.k; i += step) {
      const cuda::Pack<T, N> weights = cuda::load_pack<T, N>(w_row + i);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        // In place of a row past the last one, the last row is computed again. Its repeated result is not stored.
        const std::int64_t row = min(first_row + r, shape.m - 1);
        const cuda::Pack<T, N> values = cuda::load_pack<T, N>(x + row * shape.k + i);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[r] += cuda::to_float(weights.at[j]) * cuda::to_float(values.at[j]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    sum[r] = cuda::warp_sum(sum[r]);
    if (lane == 0) partial[warp][r] = sum[r];
  }
  __syncthreads();
  if (part != 0 || column >= shape.n) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (lane != r || first_row + r >= shape.m) continue;
    float total = 0;
    for (int p = 0; p < shape.split; ++p) total += partial[warp + p][r];
    if (bias != nullptr) total += cuda::to_float(bias[column]);
    const std::int64_t at = (first_row + r) * shape.n + column;
    if (residual != nullptr) total += cuda::to_float(residual[at]);
    y[at] = cuda::from_float<T>(total);
  }
}

// Returns how many warps share a row of w. The number grows until there are four blocks for each multiprocessor,
// because four blocks keep enough loads in flight. It stops growing earlier if a warp would have fewer than two loads.
int choose_split(const LinearProblem& p, int pack) {
  int split = 1;
  const std::int64_t wanted_blocks = 4 * p.workers;
  while (split < kWarps && p.n * split / kWarps < wanted_blocks && p.k >= 2LL * (2 * split) * kWarp * pack) split *= 2;
  return split;
}

template <class T, int kRows, int N>
std::unique_ptr<BoundOp> bind_rows(const LinearProblem& p) {
  const Shape shape{p.m, p.n, p.k, 0, choose_split(p, N)};
  const auto columns = static_cast<unsigned>((p.n * shape.split + kWarps - 1) / kWarps);
  const auto* x = reinterpret_cast<const T*>(p.x);
  const auto* w = reinterpret_cast<const T*>(p.w);
  const auto* bias = reinterpret_cast<const T*>(p.bias);
  const auto* residual = reinterpret_cast<const T*>(p.residual);
  auto* y = reinterpret_cast<T*>(p.y);
  return make_cuda_op("linear, few rows", [=](cudaStream_t stream) {
    Shape part = shape;
    for (; part.first_row < shape.m; part.first_row += cuda::kMaxGridY * kRows) {
      const std::int64_t groups = std::min((shape.m - part.first_row + kRows - 1) / kRows, cuda::kMaxGridY);
      const cuda::LaunchShape launched{.grid = dim3(columns, static_cast<unsigned>(groups)),
                                       .block = dim3(kWarps * kWarp)};
      cuda::launch_early(few_rows<T, kRows, N>, launched, stream, x, w, bias, residual, y, part);
    }
  });
}

}  // namespace

Result<std::unique_ptr<BoundOp>> bind_cuda_few_rows(const LinearProblem& p) {
  return cuda::dispatch_dtype(p.dtype, "linear", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    constexpr int kPack = cuda::kPackSize<T>;
    if (p.k % kPack != 0) return bind_rows<T, 1, 1>(p);
    if (p.m == 1) return bind_rows<T, 1, kPack>(p);
    if (p.m == 2) return bind_rows<T, 2, kPack>(p);
    return bind_rows<T, 4, kPack>(p);
  });
}

}  // namespace tessera
