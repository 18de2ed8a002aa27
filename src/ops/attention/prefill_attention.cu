// Binds prefill attention (prefill_attention.cuh).
#include "tessera/ops/attention/prefill_attention.h"

#include <array>

#include "tessera/ops/attention/cuda_cache_map.h"
#include "tessera/ops/attention/prefill_attention.cuh"
#include "tessera/ops/attention/prefill_copies.cuh"
#include "tessera/ops/attention/prefill_rows.cuh"
#include "tessera/ops/attention/prefill_widening.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/tensor_map.h"

namespace tessera {
namespace cuda::prefill {
namespace {

template <class S>
constexpr bool fits_planner() {
  return S::kRows == (S::kJoined ? kShortTileRows : kPrefillTileRows) &&
         prefill_part_bytes(S::kHeadDim) == kCluster * S::kPartChunks * kWarpgroups * kWarpgroup * sizeof(float4);
}
template <Reach kReach>
constexpr bool fit_planner() {
  return fits_planner<Shape<64, Share::kRows, kReach>>() && fits_planner<Shape<64, Share::kKeys, kReach>>() &&
         fits_planner<Shape<128, Share::kRows, kReach>>() && fits_planner<Shape<128, Share::kKeys, kReach>>() &&
         fits_planner<Shape<256, Share::kRows, kReach>>() &&
         fits_planner<Shape<64, Share::kRows, kReach, Stored::kFloat8>>() &&
         fits_planner<Shape<64, Share::kKeys, kReach, Stored::kFloat8>>() &&
         fits_planner<Shape<128, Share::kRows, kReach, Stored::kFloat8>>() &&
         fits_planner<Shape<128, Share::kKeys, kReach, Stored::kFloat8>>();
}
static_assert(fit_planner<Reach::kAll>() && fit_planner<Reach::kWindow>());

template <class S, class T>
__global__ void __maxnreg__(S::kRegisters) prefill_attention(const __grid_constant__ Attention<T> p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier full[S::kSlots], empty[S::kSlots], query_full[S::kQuerySlots], query_empty[S::kQuerySlots];
  __shared__ SharedBarrier arrived[S::kWidens ? kWideningWarps * S::kStages : 1];
  constexpr unsigned kWarps = kWarpgroups * kWarpgroup / kWarp;  // warps that compute
  let_next_begin();
  const int cluster = static_cast<int>(blockIdx.x) / kCluster;
  const int begin = p.starts[cluster];
  const int end = p.starts[cluster + 1];
  const std::uint32_t queries = (shared_address(unaligned) + 1023) / 1024 * 1024;
  const std::uint32_t tiles = queries + S::kQuerySlots * S::kQueryBytes;
  const std::uint32_t joined = tiles + S::kSlots * S::kTileBytes;
  const Shared<S> shared{queries, tiles, joined, full, empty, query_full, query_empty, joined + S::kJoinBytes, arrived};
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int warp = static_cast<int>(threadIdx.x) / kWarp % (kWarpgroup / kWarp);
  if (threadIdx.x == 0) {
    for (SharedBarrier& barrier : full) barrier.init(S::kWidens ? kWideningWarps : 1);
    for (SharedBarrier& barrier : empty) barrier.init(S::kWidens ? kWarps : kCluster * kWarps);
    for (SharedBarrier& barrier : arrived) barrier.init(1);
    for (SharedBarrier& barrier : query_full) barrier.init(1);
    for (SharedBarrier& barrier : query_empty) barrier.init(kWarps);
    SharedBarrier::make_visible();
    prefetch_map(p.q);
    prefetch_map(p.keys);
    prefetch_map(p.values);
  }
  if (begin == end) {
    if (blockIdx.x == 0) wait_for_previous();
    return;
  }
  arrive_at_cluster();
  if (warpgroup == kWarpgroups) {
    if constexpr (S::kWidens) {
      WideningWarp<S, T> widening{{p, shared, warp * WideningWarp<S, T>::kMine}};
      widening.look_up(begin);
      wait_for_cluster();
      keep_registers<S::kCopyingRegisters, false>();
      widening.run(begin, end);
    } else {
      const bool copies = warp < kCopyingWarps;
      CopyingWarp<S, T> copying{{p, shared, static_cast<int>(block_in_cluster()) * CopyingWarp<S, T>::kMine},
                                /*copies_keys=*/warp == 0,
                                /*copies_values=*/warp == 1};
      if (copies) copying.look_up(begin);
      wait_for_cluster();
      keep_registers<S::kCopyingRegisters, false>();
      if (copies) copying.run(begin, end);
    }
  } else {
    wait_for_cluster();
    keep_registers<S::kComputingRegisters, true>();
    RowsWarpgroup<S, T>{p, shared, warpgroup, warp}.run(begin, end);
  }
#endif
}

// Encodes the tensor map of the queries. A box has kGroupRows rows of one head.
Result<CUtensorMap> map_of_queries(const CudaAttention& a) {
  const std::int64_t head_dim = a.shape.head_dim;
  const std::int64_t row = a.shape.heads * head_dim;
  return encode_tensor_map(
      a.shape.dtype, a.q,
      std::array{
          TensorBox{.size = kColumns, .stride = 1, .box = kColumns},
          TensorBox{.size = a.num_rows, .stride = row, .box = kGroupRows},
          TensorBox{.size = head_dim / kColumns, .stride = kColumns, .box = static_cast<int>(head_dim) / kColumns},
          TensorBox{.size = a.shape.heads, .stride = head_dim, .box = 1},
          TensorBox{.size = 1, .stride = a.num_rows * row, .box = 1}});
}

// Encodes the tensor map of the keys or values. A box has kBoxTokens tokens of one KV head, and the columns of one
// panel (Shape::kPanelColumns). Over a cache of E4M3 it has all columns, and no swizzle.
template <class S>
Result<CUtensorMap> map_of_cache(const CudaAttention& a, const std::byte* cache) {
  if constexpr (S::kWidens)
    return map_cache(a, cache, {.tokens = kBoxTokens, .row_bytes = S::kHeadDim, .swizzle = Swizzle::kNone});
  const std::int64_t head_dim = a.shape.head_dim;
  const std::int64_t token = a.shape.kv_heads * head_dim;
  return encode_tensor_map(
      a.shape.dtype, cache,
      std::array{TensorBox{.size = kColumns, .stride = 1, .box = kColumns},
                 TensorBox{.size = 8, .stride = token, .box = 8},
                 TensorBox{.size = head_dim / kColumns, .stride = kColumns, .box = S::kPanelMatrices},
                 TensorBox{.size = a.num_pages * a.page_size / 8, .stride = 8 * token, .box = kBoxTokens / 8},
                 TensorBox{.size = a.shape.kv_heads, .stride = head_dim, .box = 1}});
}

template <class S, class T>
Result<std::unique_ptr<BoundOp>> make(const CudaAttention& a, const TilePlan& plan) {
  constexpr float kLog2E = 1.44269504088896F;
  const CUtensorMap queries = TRY(map_of_queries(a));
  const CUtensorMap keys = TRY(map_of_cache<S>(a, a.k_cache));
  const CUtensorMap values = TRY(map_of_cache<S>(a, a.v_cache));
  const Attention<T> p{.q = queries,
                       .keys = keys,
                       .values = values,
                       .out = reinterpret_cast<T*>(a.out),
                       .page_table = a.metadata.page_table,
                       .query_starts = a.metadata.query_starts,
                       .kv_lens = a.metadata.kv_lens,
                       .starts = plan.starts,
                       .works = plan.works,
                       .sinks = a.sinks,
                       .scales = a.scales,
                       .part_results = reinterpret_cast<float4*>(plan.part_results),
                       .arrivals = plan.arrivals,
                       .max_pages = static_cast<int>(a.metadata.max_pages_per_request),
                       .page_size = static_cast<int>(a.page_size),
                       .token_groups = static_cast<int>(a.num_pages * a.page_size / 8),
                       .rows = static_cast<int>(a.num_rows),
                       .heads = static_cast<int>(a.shape.heads),
                       .group = static_cast<int>(a.group()),
                       .pairs = static_cast<int>(prefill_units(a.shape).per_tile),
                       .window = static_cast<int>(a.shape.window),
                       .scale_log2 = a.scale * kLog2E};
  constexpr auto kKernel = prefill_attention<S, T>;
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), S::kSharedBytes, "attention (fa3)"));
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(plan.workers * kCluster)), .block = dim3(kThreads), .cluster = kCluster};
  return make_cuda_op("attention (fa3)", [=](cudaStream_t stream) {
    launch_with(kKernel, shape, S::kSharedBytes, can_launch_early(), stream, p);
  });
}

template <class S>
Result<std::unique_ptr<BoundOp>> bind(const CudaAttention& a, const TilePlan& plan) {
  if (a.shape.dtype == ir::DType::kBFloat16) return make<S, __nv_bfloat16>(a, plan);
  return make<S, __half>(a, plan);
}

template <int kHeadDim, Share kShare, Stored kStored = Stored::kOfQueries>
Result<std::unique_ptr<BoundOp>> bind_head(const CudaAttention& a, const TilePlan& plan) {
  if (a.shape.window > 0) return bind<Shape<kHeadDim, kShare, Reach::kWindow, kStored>>(a, plan);
  return bind<Shape<kHeadDim, kShare, Reach::kAll, kStored>>(a, plan);
}

// Binds the kernel for heads of 64 or 128 elements.
template <Share kShare, Stored kStored>
Result<std::unique_ptr<BoundOp>> bind_stored(const CudaAttention& a, const TilePlan& plan) {
  return a.shape.head_dim == 64 ? bind_head<64, kShare, kStored>(a, plan) : bind_head<128, kShare, kStored>(a, plan);
}
template <Share kShare>
Result<std::unique_ptr<BoundOp>> bind_share(const CudaAttention& a, const TilePlan& plan) {
  return a.shape.cache_dtype == ir::DType::kFloat8E4M3 ? bind_stored<kShare, Stored::kFloat8>(a, plan)
                                                       : bind_stored<kShare, Stored::kOfQueries>(a, plan);
}

}  // namespace
}  // namespace cuda::prefill

bool serves_prefill_attention([[maybe_unused]] const AttentionShape& shape,
                              [[maybe_unused]] const AttentionTarget& target) {
#ifdef TESSERA_WITH_SM90A
  return target.compute_capability == 90 && (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256) &&
         (shape.dtype == ir::DType::kBFloat16 || shape.dtype == ir::DType::kFloat16) &&
         (shape.cache_dtype == shape.dtype || (shape.cache_dtype == ir::DType::kFloat8E4M3 && shape.head_dim <= 128)) &&
         shape.softcap == 0 && target.page_size % cuda::prefill::kBoxTokens == 0;
#else
  return false;
#endif
}

Result<std::unique_ptr<BoundOp>> bind_prefill_attention(const CudaAttention& attention, const TilePlan& plan) {
  using namespace cuda::prefill;
  return attention.shape.head_dim == 256 ? bind_head<256, Share::kRows>(attention, plan)
                                         : bind_share<Share::kRows>(attention, plan);
}

Result<std::unique_ptr<BoundOp>> bind_short_prefill_attention(const CudaAttention& attention, const TilePlan& plan) {
  return cuda::prefill::bind_share<cuda::prefill::Share::kKeys>(attention, plan);
}

}  // namespace tessera
