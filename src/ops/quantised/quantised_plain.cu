// Computes quantised_linear for everything that no faster kernel supports: float32, odd sizes, columns whose scales the
// operand `groups` names, and GPUs before Hopper. A warp multiplies eight rows of x by one row of w; each of its lanes
// takes some of the columns. The time is bounded by reading and converting w again for every eight rows.
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera {
namespace cuda::quantised {
namespace {

constexpr int kRowsOfWarp = 8;
constexpr int kWarpsOfBlock = 8;

template <class T>
struct Plain {
  QuantisedMatrix w;
  const T* x;
  const T* bias;
  const T* residual;
  T* y;
  std::int64_t m;
};

template <class T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp) plain(const Plain<T> p) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (n >= p.w.rows) return;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kRowsOfWarp; first < p.m;
       first += static_cast<std::int64_t>(gridDim.y) * kRowsOfWarp) {
    const int rows = static_cast<int>(p.m - first < kRowsOfWarp ? p.m - first : kRowsOfWarp);
    float sum[kRowsOfWarp] = {};
    for (std::int64_t k = lane; k < p.w.cols; k += kWarp) {
      const float w = element(p.w, n, k);
#pragma unroll
      for (int r = 0; r < kRowsOfWarp; ++r)
        if (r < rows) sum[r] += to_float(p.x[(first + r) * p.w.cols + k]) * w;
    }
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      if (r >= rows) break;
      float y = warp_sum(sum[r]);
      if (lane != 0) continue;
      const std::int64_t at = (first + r) * p.w.rows + n;
      if (p.bias != nullptr) y += to_float(p.bias[n]);
      if (p.residual != nullptr) y += to_float(p.residual[at]);
      p.y[at] = from_float<T>(y);
    }
  }
}

}  // namespace
}  // namespace cuda::quantised

Result<std::unique_ptr<BoundOp>> bind_quantised_plain(const QuantisedCall& p) {
  return cuda::dispatch_dtype(p.dtype, "quantised_linear", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    using namespace cuda::quantised;
    const Plain<T> bound{.w = p.w,
                         .x = reinterpret_cast<const T*>(p.x),
                         .bias = reinterpret_cast<const T*>(p.bias),
                         .residual = reinterpret_cast<const T*>(p.residual),
                         .y = reinterpret_cast<T*>(p.y),
                         .m = p.m};
    const cuda::LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(ceil_div(p.n, std::int64_t{kWarpsOfBlock})),
                     static_cast<unsigned>(std::min(cuda::kMaxGridY, ceil_div(p.m, std::int64_t{kRowsOfWarp})))),
        .block = dim3(kWarpsOfBlock * cuda::kWarp)};
    return make_cuda_op("quantised_linear, plain",
                        [=](cudaStream_t stream) { cuda::launch_early(plain<T>, shape, stream, bound); });
  });
}

}  // namespace tessera
