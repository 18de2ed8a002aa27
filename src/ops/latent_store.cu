#include "tessera/ops/latent_store.h"

#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/cuda_norm.cuh"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/cuda_rotary.cuh"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// The value of type X, in the type of what it is stored in.
template <class X, class To>
__device__ inline void store_as(To* to, X value) {
  *to = from_float<To>(to_float(value));
}

// Pair i of `rotated / 2`, from x to y. `angles`: a row of the table.
template <class X, class To>
__device__ inline void turn(const X* x, const float* angles, To* y, int i, int half, bool interleaved) {
  const int first = interleaved ? 2 * i : i;
  const int second = interleaved ? 2 * i + 1 : i + half;
  X a = x[first];
  X b = x[second];
  rotate(a, b, angles[i], angles[half + i]);
  store_as(y + first, a);
  store_as(y + second, b);
}

// Grid [tokens, 1 + blocks of queries]: the first block of a token has its latent and key, the others its queries'
// pairs.
template <class X, class Y>
__global__ void __launch_bounds__(kThreads) latent_store(const __grid_constant__ LatentStoreArgs<X, Y> args) {
  __shared__ float scratch[kWarp];
  let_next_begin();
  wait_for_previous();
  const std::int64_t token = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const int half = static_cast<int>(args.rotated / 2);
  const float* angles = args.table + token * args.rotated;
  if (blockIdx.y > 0) {
    const std::int64_t pair = static_cast<std::int64_t>(blockIdx.y - 1) * kThreads + thread;
    if (pair >= args.heads * half) return;
    const std::int64_t head = token * args.heads + pair / half;
    turn(args.q + (head + 1) * args.q_dim - args.rotated, angles, args.query + head * args.width() + args.latent,
         static_cast<int>(pair % half), half, args.interleaved);
    return;
  }
  const std::int64_t slot = args.slots[token];
  if (slot < 0 || slot >= args.num_slots) return;
  const X* kv = args.kv + token * args.width();
  Y* row = args.cache + slot * args.width();
  float squares = 0;
  for (std::int64_t i = thread; i < args.latent; i += kThreads) squares += to_float(kv[i]) * to_float(kv[i]);
  const float scale = rms_scale(block_sum(squares, scratch), args.latent, args.eps);
  for (std::int64_t i = thread; i < args.latent; i += kThreads)
    store_as(row + i, normalised(Pack<X, 1>{kv[i]}, Pack<X, 1>{args.weight[i]}, scale, NormForm::kRoundFirst).at[0]);
  for (int i = thread; i < half; i += kThreads)
    turn(kv + args.latent, angles, row + args.latent, i, half, args.interleaved);
}

template <class X, class Y>
std::unique_ptr<BoundOp> make_kernel(const BindArgs& args) {
  const LatentStoreArgs<X, Y> bound = latent_store_args<X, Y>(args);
  const std::int64_t query_blocks = ceil_div(bound.heads * bound.rotated / 2, kThreads);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(bound.num_tokens), static_cast<unsigned>(1 + query_blocks)),
      .block = dim3(kThreads)};
  return make_cuda_op("latent_store",
                      [=](cudaStream_t stream) { launch_early(latent_store<X, Y>, shape, stream, bound); });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(args.operands[0].dtype, "latent_store", [&]<class X>() -> Bound {
    return dispatch_dtype(args.operands[5].dtype, "latent_store's cache",
                          [&]<class Y>() -> Bound { return make_kernel<X, Y>(args); });
  });
}

}  // namespace

const KernelDef kLatentStoreCuda{.op = "latent_store", .name = "cuda", .bind = bind};

}  // namespace tessera
