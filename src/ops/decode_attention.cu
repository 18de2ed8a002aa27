#include <memory>

#include "tessera/ops/cuda_attention_planner.h"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/decode_attention.cuh"

namespace tessera {
namespace {

using namespace cuda;

template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make(const CudaAttention& a, const ChunkedPlan& plan) {
  constexpr auto kKernel = decode_attention<T, kHeadDim>;
  constexpr std::size_t kBytes = sizeof(DecodeShared<T, kHeadDim>);
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, "attention (decode)"));
  const ChunkGrid grid = chunk_grid(a.num_rows, plan.limits);
  DecodeAttention<T> p{.q = reinterpret_cast<const T*>(a.q),
                       .keys = reinterpret_cast<const T*>(a.k_cache),
                       .values = reinterpret_cast<const T*>(a.v_cache),
                       .page_table = a.metadata.page_table,
                       .kv_lens = a.metadata.kv_lens,
                       .requests = plan.blocks.requests,
                       .chunks = plan.blocks.chunks,
                       .chunk_size = nullptr,
                       .valid = plan.blocks.valid,
                       .sinks = a.sinks,
                       .partial_values = nullptr,
                       .partial_lse = nullptr,
                       .merge = {.values = nullptr,
                                 .lse = nullptr,
                                 .part_starts = plan.blocks.starts,
                                 .arrivals = plan.arrivals,
                                 .out = reinterpret_cast<T*>(a.out),
                                 .heads = static_cast<int>(a.shape.heads),
                                 .kv_heads = static_cast<int>(a.shape.kv_heads)},
                       .scale_log2 = a.scale * kLog2E,
                       .max_pages = static_cast<int>(a.metadata.max_pages_per_request),
                       .page_size = static_cast<int>(a.page_size)};
  if (grid.split) {
    p.chunk_size = plan.blocks.chunk_size;
    p.partial_values = reinterpret_cast<T*>(plan.partial_values);
    p.partial_lse = plan.partial_lse;
    p.merge.values = p.partial_values;
    p.merge.lse = p.partial_lse;
  }
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(a.shape.kv_heads)),
                          .block = dim3(kWarp, kDecodeWarps)};
  return make_cuda_op("attention (decode)",
                      [=](cudaStream_t stream) { launch_with(kKernel, shape, kBytes, can_launch_early(), stream, p); });
}

template <class T>
Result<std::unique_ptr<BoundOp>> make(const CudaAttention& a, const ChunkedPlan& plan) {
  return a.shape.head_dim == 64 ? make<T, 64>(a, plan) : make<T, 128>(a, plan);
}

}  // namespace

bool serves_decode_attention(const CudaAttention& a) {
  constexpr std::int64_t kMostRows = 8;  // beyond, bandwidth decides, and FA2's longer pipeline is faster
  const AttentionShape& s = a.shape;
  return a.num_rows <= kMostRows && a.group() <= kDecodeRows && (s.head_dim == 64 || s.head_dim == 128) &&
         s.window == 0 && s.softcap == 0 && s.dtype == a.cache_dtype && s.dtype != ir::DType::kFloat32;
}

Result<std::unique_ptr<BoundOp>> bind_decode_attention(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  const ChunkedPlan plan = planner.chunked_plan(a.shape);
  if (a.shape.dtype == ir::DType::kBFloat16) return make<__nv_bfloat16>(a, plan);
  return make<__half>(a, plan);
}

}  // namespace tessera
