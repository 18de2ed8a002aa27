#include "tessera/ops/sampling/softmax.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/online_softmax.cuh"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kThreads = 1024;

using Softmax = OnlineSoftmax<BaseE>;

// Adds a pack of values to the running softmax sum. NaN does not become the running max, but makes the sum NaN. The
// running max may still be -inf.
template <int N>
__device__ void add(Softmax& total, const Pack<float, N>& x) {
  float greatest = total.running_max;
#pragma unroll
  for (int j = 0; j < N; ++j) greatest = x.at[j] > greatest ? x.at[j] : greatest;
  if (greatest > total.running_max) total.raise(greatest);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) sum += total.weight<Keys::kMaybeNone>(x.at[j]);
  total.sum += sum;
}

__device__ float block_max(float x, float* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  x = warp_max(x);
  if (lane == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_max(scratch[lane]);
}

// Writes y = log_softmax(x), where x and y are [rows, n]. A block takes one row, and reads the row twice, the second
// time from the cache.
template <int N>
__global__ void __launch_bounds__(kThreads) log_softmax(const float* x, float* y, std::int64_t n) {
  static_assert(kThreads == kWarp * kWarp);
  __shared__ float maxima[kWarp];
  __shared__ float sums[kWarp];
  x += static_cast<std::int64_t>(blockIdx.x) * n;
  y += static_cast<std::int64_t>(blockIdx.x) * n;
  Softmax mine;
  for (std::int64_t i = threadIdx.x * N; i < n; i += kThreads * N) add(mine, load_pack<float, N>(x + i));
  const float greatest = block_max(mine.running_max, maxima);
  const float sum = block_sum(mine.sum * part_weight<BaseE>(mine.running_max, greatest), sums);
  // Subtracts `greatest` and log(sum) one after the other. If they were added first, rounding could lose the smaller
  // one.
  const float log_sum = logf(sum);
  for (std::int64_t i = threadIdx.x * N; i < n; i += kThreads * N) {
    Pack<float, N> out = load_pack<float, N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = (out.at[j] - greatest) - log_sum;
    store_pack(y + i, out);
  }
}

Result<std::unique_ptr<BoundOp>> bind_log_softmax(const BindArgs& args) {
  const float* x = args.operands[0].as<float>();
  float* y = args.results[0].as<float>();
  const std::int64_t n = args.operands[0].cols();
  const auto kernel = n % kPackSize<float> == 0 ? log_softmax<kPackSize<float>> : log_softmax<1>;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.operands[0].rows())), .block = dim3(kThreads)};
  return make_cuda_op(
      "log_softmax", [=](cudaStream_t stream) { launch(kernel, shape, stream, x, y, n); },
      reinterpret_cast<std::uintptr_t>(kernel));
}

}  // namespace

const KernelDef kLogSoftmaxCuda{.op = "log_softmax", .name = "cuda", .bind = bind_log_softmax};

}  // namespace tessera
