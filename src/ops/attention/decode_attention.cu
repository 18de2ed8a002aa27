// Binds attention of single rows on Hopper (decode_attention.cuh).
#include "tessera/ops/attention/decode_attention.h"

#include "tessera/ops/attention/cuda_attention_planner.h"
#include "tessera/ops/attention/cuda_cache_map.h"
#include "tessera/ops/attention/decode_attention.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"

namespace tessera {
namespace {

using namespace cuda;

constexpr const char* kName = "attention (hopper)";

bool has_kernel(std::int64_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256 || head_dim == 512;
}

// Calls f.operator()<T, Y, kHeadDim>() for a shape that the kernel supports.
template <class F>
auto with_kernel(const AttentionShape& shape, F&& f) {
  const auto with_head_dim = [&]<class T, class Y>() {
    switch (shape.head_dim) {
      case 64: return f.template operator()<T, Y, 64>();
      case 128: return f.template operator()<T, Y, 128>();
      case 256: return f.template operator()<T, Y, 256>();
      default: return f.template operator()<T, Y, 512>();
    }
  };
  const auto with_cache = [&]<class T>() {
    return shape.cache_dtype == ir::DType::kFloat8E4M3 ? with_head_dim.template operator()<T, __nv_fp8_e4m3>()
                                                       : with_head_dim.template operator()<T, T>();
  };
  return shape.dtype == ir::DType::kBFloat16 ? with_cache.template operator()<__nv_bfloat16>()
                                             : with_cache.template operator()<__half>();
}

template <class T, class Y, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  constexpr auto kKernel = decode_attention<T, Y, kHeadDim>;
  constexpr std::size_t kBytes = sizeof(DecodeShared<Y, kHeadDim>);
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, kName));
  const SegmentedPlan plan = planner.segmented_plan(a.shape);
  constexpr int kRow = kRowBytes<Y, kHeadDim>;
  constexpr CacheBox kBox{
      .tokens = kKeyBlock, .row_bytes = kRow, .swizzle = kRow == 64 ? Swizzle::k64Bytes : Swizzle::k128Bytes};
  const CUtensorMap keys = TRY(map_cache(a, a.k_cache, kBox));
  const CUtensorMap values = TRY(map_cache(a, a.v_cache, kBox));
  const DecodeAttention<T> p{.keys = keys,
                             .values = values,
                             .q = reinterpret_cast<const T*>(a.q),
                             .plan = plan.lists,
                             .page_table = a.metadata.page_table,
                             .sinks = a.sinks,
                             .scales = a.scales,
                             .parts = {.out = reinterpret_cast<T*>(a.out),
                                       .values = reinterpret_cast<T*>(plan.partial_values),
                                       .lse = plan.partial_lse,
                                       .arrivals = plan.arrivals,
                                       .heads = static_cast<int>(a.shape.heads),
                                       .kv_heads = static_cast<int>(a.shape.kv_heads)},
                             .scale = a.scale,
                             .softcap = static_cast<float>(a.shape.softcap),
                             .max_pages = static_cast<int>(a.metadata.max_pages_per_request),
                             .page_size = static_cast<int>(a.page_size)};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.workers), static_cast<unsigned>(a.shape.kv_heads)),
                          .block = dim3(kWarp, kDecodeWarps<Y, kHeadDim>)};
  const ExtendWork* work = a.kind == BatchKind::kExtend ? planner.extend_work(a.shape) : nullptr;
  return make_cuda_op(kName, [=](cudaStream_t stream) {
    if (work != nullptr && work->single_blocks == 0 && !is_recording(stream)) return;
    launch_with(kKernel, shape, kBytes, can_launch_early(), stream, p);
  });
}

}  // namespace

bool decode_attention_serves([[maybe_unused]] const AttentionShape& shape,
                             [[maybe_unused]] const AttentionTarget& target) {
#ifdef TESSERA_WITH_SM90A
  return target.compute_capability == 90 && target.page_size % kKeyBlock == 0 && has_kernel(shape.head_dim) &&
         shape.heads / shape.kv_heads <= kDecodeHeads &&
         (shape.dtype == ir::DType::kBFloat16 || shape.dtype == ir::DType::kFloat16) &&
         (shape.cache_dtype == shape.dtype || shape.cache_dtype == ir::DType::kFloat8E4M3);
#else
  return false;
#endif
}

std::int64_t decode_tile_keys(const AttentionShape& shape) {
  return with_kernel(
      shape, [&]<class T, class Y, int kHeadDim>() { return std::int64_t{kDecodeWarps<Y, kHeadDim> * kKeyBlock}; });
}

Result<int> decode_attention_residency(const AttentionShape& shape) {
  return with_kernel(shape, [&]<class T, class Y, int kHeadDim>() {
    return blocks_per_multiprocessor(reinterpret_cast<const void*>(decode_attention<T, Y, kHeadDim>),
                                     kDecodeWarps<Y, kHeadDim> * kWarp, sizeof(DecodeShared<Y, kHeadDim>), kName);
  });
}

Result<std::unique_ptr<BoundOp>> bind_decode_attention(const CudaAttention& attention,
                                                       const CudaAttentionPlanner& planner) {
  return with_kernel(attention.shape,
                     [&]<class T, class Y, int kHeadDim>() { return make<T, Y, kHeadDim>(attention, planner); });
}

}  // namespace tessera
