#include "tessera/ops/latent/latent_store.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_norm.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/latent/latent_rotation.cuh"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

constexpr int kHeld = 8;  // number of values that a thread loads before it uses the first one

// Normalises a row with a whole block. Each thread keeps its first kHeld values in registers, and reads any further
// values a second time.
template <class X, class Y>
__device__ inline void normalise(const X* x, const X* weight, std::int64_t size, float eps, Y* y, float* scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  X held[kHeld];
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = j * kThreads + thread;
    held[j] = i < size ? x[i] : X{};
    squares = fmaf(to_float(held[j]), to_float(held[j]), squares);
  }
  for (std::int64_t i = kHeld * kThreads + thread; i < size; i += kThreads)
    squares = fmaf(to_float(x[i]), to_float(x[i]), squares);
  const float scale = rms_scale(block_sum(squares, scratch), size, eps);
  const auto store = [&](std::int64_t i, X value) {
    store_as(y + i, normalised(Pack<X, 1>{value}, Pack<X, 1>{weight[i]}, scale, NormForm::kRoundFirst).at[0]);
  };
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    if (j * kThreads + thread < size) store(j * kThreads + thread, held[j]);
  for (std::int64_t i = kHeld * kThreads + thread; i < size; i += kThreads) store(i, x[i]);
}

// Stores the rows of the operator. gridDim.x counts tokens. The block with blockIdx.y = 0 stores the token's latent and
// key. The block with blockIdx.y = 1, if there is one, stores the token's query latent.
template <class X, class Y>
__global__ void __launch_bounds__(kThreads) latent_store(const __grid_constant__ LatentStoreArgs<X, Y> args) {
  __shared__ float scratch[kWarp];
  let_next_begin();
  wait_for_previous();
  const std::int64_t token = blockIdx.x;
  const X* x = args.x + token * args.x_width;
  if (blockIdx.y > 0) {
    normalise(x, args.q_weight, args.q_latent, args.eps, args.q + token * args.q_latent, scratch);
    return;
  }
  const std::int64_t slot = args.slots[token];
  if (slot < 0 || slot >= args.num_slots) return;
  const X* kv = x + args.x_width - args.width();
  Y* row = args.cache + slot * args.width();
  normalise(kv, args.weight, args.latent, args.eps, row, scratch);
  const int half = static_cast<int>(args.rotated / 2);
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads)
    turn(kv + args.latent, args.table + token * args.rotated, row + args.latent, i, half, args.interleaved);
}

template <class X, class Y>
std::unique_ptr<BoundOp> make_kernel(const BindArgs& args) {
  const LatentStoreArgs<X, Y> bound = latent_store_args<X, Y>(args);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(bound.num_tokens), bound.q_latent > 0 ? 2U : 1U),
                          .block = dim3(kThreads)};
  return make_cuda_op("latent_store",
                      [=](cudaStream_t stream) { launch_early(latent_store<X, Y>, shape, stream, bound); });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(args.operands[0].dtype, "latent_store", [&]<class X>() -> Bound {
    return dispatch_dtype(args.operands[4].dtype, "latent_store's cache",
                          [&]<class Y>() -> Bound { return make_kernel<X, Y>(args); });
  });
}

}  // namespace

const KernelDef kLatentStoreCuda{.op = "latent_store", .name = "cuda", .bind = bind};

}  // namespace tessera
