#include "tessera/ops/cache/qkv_rope_store.h"

#include <algorithm>
#include <bit>
#include <string>

#include "tessera/ops/cache/qkv_rope_store_args.h"
#include "tessera/ops/cuda/cuda_float8.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_norm.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_rotary.cuh"
#include "tessera/ops/cuda/l2_prefetch.cuh"

namespace tessera {
namespace {

using namespace cuda;

template <class X, class Y, int N>
__device__ void store_as(Y* to, const Pack<X, N>& values, float scale) {
  Pack<Y, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out.at[j] = to_cache<Y>(to_float(values.at[j]), scale);
  store_pack(to, out);
}

constexpr int kMostThreads = 1024;  // maximum number of threads of a block

// Normalises, rotates and stores the heads of all tokens. blockIdx.x is the token. A group of blockDim.x threads
// processes one of the token's heads. Each thread processes one or two packs of the head's elements. The packs of a
// thread form a HeadSlot (cuda_rotary.cuh). The thread loads them at once and keeps them in registers. row_sum() adds
// over either a part of a warp or a whole block, so a group that is larger than a warp must be a whole block.
template <class X, class Y, int N>
__global__ void __launch_bounds__(kMostThreads) qkv_rope_store(const __grid_constant__ QkvRopeStoreArgs<X, Y> args) {
  __shared__ float scratch[kWarp];
  let_next_begin();
  const HeadShape shape{static_cast<int>(args.head_dim), static_cast<int>(args.half)};
  const std::int64_t token = blockIdx.x;
  const std::int64_t row_head = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  const std::int64_t kv_head = row_head - args.heads;
  const bool is_query = row_head < args.heads;
  const bool is_value = kv_head >= args.kv_heads;
  const HeadSlot slot = slot_at<N>(shape, static_cast<int>(threadIdx.x));
  const bool is_mine = row_head < args.row_heads() && static_cast<int>(threadIdx.x) < slots_of<N>(shape);
  const bool has_second = is_mine && slot.second >= 0;
  const bool is_turned = is_mine && slot.rotated && !is_value;

  const X* const w = is_query ? args.q_weight : args.k_weight;
  const float* const table = args.table + token * 2 * args.half;
  if (token == 0 && is_mine && w != nullptr) {
    prefetch_to_l2(w + slot.first);
    if (has_second) prefetch_to_l2(w + slot.second);
  }
  if (is_turned) {
    prefetch_to_l2(table + slot.first);
    prefetch_to_l2(table + args.half + slot.first);
  }
  prefetch_to_l2(args.slots + token);
  wait_for_previous();

  Pack<X, N> a;
  Pack<X, N> b;
  Pack<X, N> a_weight;
  Pack<X, N> b_weight;
  Angles<N> angles;
  const X* x = args.qkv + (token * args.row_heads() + row_head) * args.head_dim;
  if (is_mine) a = load_pack<X, N>(x + slot.first);
  if (has_second) b = load_pack<X, N>(x + slot.second);
  if (w != nullptr) {
    if (is_mine) a_weight = load_pack<X, N>(w + slot.first);
    if (has_second) b_weight = load_pack<X, N>(w + slot.second);
  }
  if (is_turned) angles = load_angles<N>(table, shape.half, slot.first);
  const std::int64_t cache_slot = args.slots[token];

  if (args.q_weight != nullptr) {
    // Adds the sums of a HeadSlot's two packs first, so that all sums are added in the same order as in head_norm.
    const float first = is_mine ? sum_of_squares(a) : 0.0f;
    const float second = has_second ? sum_of_squares(b) : 0.0f;
    const float scale = rms_scale(row_sum(first + second, scratch), args.head_dim, args.eps);
    if (is_mine && !is_value) a = normalised(a, a_weight, scale, args.form);
    if (has_second && !is_value) b = normalised(b, b_weight, scale, args.form);
  }
  if (is_turned) rotate_packs(a, b, angles);

  if (is_query) {
    X* q = args.q + (token * args.heads + row_head) * args.head_dim;
    if (is_mine) store_pack(q + slot.first, a);
    if (has_second) store_pack(q + slot.second, b);
    return;
  }
  if (cache_slot < 0 || cache_slot >= args.num_slots) return;
  const std::int64_t cache_head = cache_slot * args.kv_heads + (is_value ? kv_head - args.kv_heads : kv_head);
  Y* cache = (is_value ? args.v_cache : args.k_cache) + cache_head * args.head_dim;
  const float scale = scale_or_one(is_value ? args.scales.values : args.scales.keys);
  if (is_mine) store_as(cache + slot.first, a, scale);
  if (has_second) store_as(cache + slot.second, b, scale);
}

template <class X, class Y, int N>
Result<std::unique_ptr<BoundOp>> make_kernel(const QkvRopeStoreArgs<X, Y>& args, const HeadShape& head) {
  const unsigned threads = std::bit_ceil(static_cast<unsigned>(slots_of<N>(head)));
  if (threads > kMostThreads)
    return unimplemented("qkv_rope_store: heads of " + std::to_string(head.dim) + " values; at most " +
                         std::to_string(2 * N * kMostThreads) + " are possible");
  const unsigned heads = threads > kWarp ? 1 : static_cast<unsigned>(kBlockThreads) / threads;  // heads per block
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.num_tokens), static_cast<unsigned>(ceil_div(args.row_heads(), heads))),
      .block = dim3(threads, heads)};
  return make_cuda_op("qkv_rope_store",
                      [=](cudaStream_t stream) { launch_early(qkv_rope_store<X, Y, N>, shape, stream, args); });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(args.operands[0].dtype, "qkv_rope_store", [&]<class X>() -> Bound {
    return cuda::dispatch_cache_type(args.operands[3].dtype, "qkv_rope_store's cache", [&]<class Y>() -> Bound {
      constexpr int kElements = std::min(kPackSize<X>, kPackSize<Y>);
      const QkvRopeStoreArgs<X, Y> bound = qkv_rope_store_args<X, Y>(args);
      const HeadShape head{static_cast<int>(bound.head_dim), static_cast<int>(bound.half)};
      if (fits_packs(head, kElements)) return make_kernel<X, Y, kElements>(bound, head);
      return make_kernel<X, Y, 1>(bound, head);
    });
  });
}

}  // namespace

const KernelDef kQkvRopeStoreCuda{.op = "qkv_rope_store", .name = "cuda", .bind = bind};

}  // namespace tessera
