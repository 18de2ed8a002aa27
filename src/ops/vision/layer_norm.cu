#include "tessera/ops/vision/layer_norm.h"

#include <algorithm>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/l2_prefetch.cuh"

namespace tessera {
namespace {

using namespace cuda;

template <class T>
struct LayerNorm {
  const T* x;  // [rows, n]
  const T* w;  // [n]
  const T* b;  // [n]
  T* y;        // [rows, n]
  std::int64_t rows;
  std::int64_t n;
  float eps;
};

inline constexpr int kHeld = 4;  // maximum number of packs of a row that a thread of layer_norm_held keeps

// Normalises rows that fit in registers. A block processes one row and keeps it in registers, up to kHeld packs in each
// thread. A thread issues all its loads before it waits for the first one.
template <class T>
__global__ void __launch_bounds__(kBlockThreads) layer_norm_held(const LayerNorm<T> norm) {
  constexpr int N = kPackSize<T>;
  __shared__ float scratch[2][kWarp];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * norm.n;
  const auto column = [](int h) { return static_cast<int>(threadIdx.x + h * blockDim.x) * N; };
  const auto mine = [&](int h) { return column(h) < norm.n; };
  Pack<T, N> values[kHeld];
  Pack<T, N> w[kHeld];
  Pack<T, N> b[kHeld];
  let_next_begin();
  if (blockIdx.x == 0) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      if (!mine(h)) break;
      prefetch_to_l2(norm.w + column(h));
      prefetch_to_l2(norm.b + column(h));
    }
  }
  wait_for_previous();
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) break;
    values[h] = load_pack<T, N>(norm.x + row + column(h));
    w[h] = load_pack<T, N>(norm.w + column(h));
    b[h] = load_pack<T, N>(norm.b + column(h));
  }
  float sum = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) break;
#pragma unroll
    for (int j = 0; j < N; ++j) sum += to_float(values[h].at[j]);
  }
  const float mean = block_sum(sum, scratch[0]) / static_cast<float>(norm.n);
  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) break;
#pragma unroll
    for (int j = 0; j < N; ++j) squares += (to_float(values[h].at[j]) - mean) * (to_float(values[h].at[j]) - mean);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch[1]) / static_cast<float>(norm.n) + norm.eps);
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) break;
#pragma unroll
    for (int j = 0; j < N; ++j)
      values[h].at[j] =
          from_float<T>((to_float(values[h].at[j]) - mean) * scale * to_float(w[h].at[j]) + to_float(b[h].at[j]));
    store_pack(norm.y + row + column(h), values[h]);
  }
}

// Normalises rows of any length. A block reads its row three times: for the mean, for the variance and for the result.
// The second and the third time it reads from the cache. The block adds in the same order as in layer_norm_held.
template <class T, int N>
__global__ void layer_norm(const LayerNorm<T> norm) {
  __shared__ float scratch[2][kWarp];
  let_next_begin();
  wait_for_previous();
  const T* const x = norm.x + static_cast<std::int64_t>(blockIdx.x) * norm.n;
  T* const y = norm.y + static_cast<std::int64_t>(blockIdx.x) * norm.n;
  const int first = static_cast<int>(threadIdx.x) * N;
  const int step = static_cast<int>(blockDim.x) * N;
  float sum = 0;
  for (int i = first; i < norm.n; i += step) {
    const Pack<T, N> values = load_pack<T, N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += to_float(values.at[j]);
  }
  const float mean = block_sum(sum, scratch[0]) / static_cast<float>(norm.n);
  float squares = 0;
  for (int i = first; i < norm.n; i += step) {
    const Pack<T, N> values = load_pack<T, N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) squares += (to_float(values.at[j]) - mean) * (to_float(values.at[j]) - mean);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch[1]) / static_cast<float>(norm.n) + norm.eps);
  for (int i = first; i < norm.n; i += step) {
    Pack<T, N> values = load_pack<T, N>(x + i);
    const Pack<T, N> w = load_pack<T, N>(norm.w + i);
    const Pack<T, N> b = load_pack<T, N>(norm.b + i);
#pragma unroll
    for (int j = 0; j < N; ++j)
      values.at[j] = from_float<T>((to_float(values.at[j]) - mean) * scale * to_float(w.at[j]) + to_float(b.at[j]));
    store_pack(y + i, values);
  }
}

// Makes the operator. The number of threads depends on n alone, so that a row's sums have the same order in every
// batch.
template <class T, int N>
std::unique_ptr<BoundOp> make_layer_norm(const LayerNorm<T>& norm) {
  const std::int64_t threads = std::min(kBlockThreads, ceil_div(ceil_div(norm.n, N), kWarp) * kWarp);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(norm.rows)),
                          .block = dim3(static_cast<unsigned>(threads))};
  if constexpr (N == kPackSize<T>) {
    if (norm.n <= threads * kHeld * N)
      return make_cuda_op("layer_norm",
                          [=](cudaStream_t stream) { launch_early(layer_norm_held<T>, shape, stream, norm); });
  }
  return make_cuda_op("layer_norm", [=](cudaStream_t stream) { launch_early(layer_norm<T, N>, shape, stream, norm); });
}

Result<std::unique_ptr<BoundOp>> bind_layer_norm(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "layer_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const LayerNorm<T> norm{.x = args.operands[0].as<T>(),
                            .w = args.operands[1].as<T>(),
                            .b = args.operands[2].as<T>(),
                            .y = args.results[0].as<T>(),
                            .rows = args.operands[0].rows(),
                            .n = args.operands[0].cols(),
                            .eps = static_cast<float>(args.node.attribute_or("eps", 0.0))};
    if (norm.n % kPackSize<T> == 0) return make_layer_norm<T, kPackSize<T>>(norm);
    return make_layer_norm<T, 1>(norm);
  });
}

}  // namespace

const KernelDef kLayerNormCuda{.op = "layer_norm", .name = "cuda", .bind = bind_layer_norm};

}  // namespace tessera
