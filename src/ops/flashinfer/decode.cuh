// FlashInfer's decode on CUDA cores over our page table: a block takes one KV head and one chunk of a request's keys.
// The grid depends on the padded batch size alone; blocks that a step does not need find a 0 in `valid`.
#pragma once

#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/variants.cuh>

#include "tessera/ops/cuda_attention_planner.h"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/flashinfer/kernels.h"
#include "tessera/ops/flashinfer/merge.cuh"

namespace tessera::flashinfer {

namespace fi = ::flashinfer;

// A page table with a row for each request, under the names of FlashInfer's compressed one: `indptr[b]` is where
// request b's row starts, and its length is attention's metadata's.
template <class T>
struct PageTable {
  struct RowStarts {
    std::int32_t max_pages;
    __device__ std::int32_t operator[](std::uint32_t b) const { return static_cast<std::int32_t>(b) * max_pages; }
  };

  fi::uint_fastdiv page_size;
  std::uint32_t num_heads;
  std::uint32_t head_dim;
  std::uint32_t batch_size;
  RowStarts indptr;
  T* k_data;
  T* v_data;
  const std::int32_t* indices;
  const std::int32_t* kv_lens;
  static constexpr const std::int32_t* rope_pos_offset = nullptr;

  __device__ std::uint32_t get_length(std::uint32_t b) const { return static_cast<std::uint32_t>(kv_lens[b]); }
  // Entries past a request's pages are ids of other pages or 0: never read, and always inside the cache.
  __device__ std::size_t protective_get_kv_offset(std::int32_t entry, std::uint32_t head, std::uint32_t token,
                                                  std::uint32_t element, std::int32_t end) const {
    if (entry >= end) return 0;
    const auto slot = static_cast<std::size_t>(__ldg(indices + entry)) * static_cast<std::uint32_t>(page_size) + token;
    return (slot * num_heads + head) * head_dim + element;
  }
};

template <class T>
struct DecodeParams {
  using DTypeQ = T;
  using DTypeKV = T;
  using DTypeO = T;
  using IdType = std::int32_t;

  T* q;
  PageTable<T> paged_kv;
  T* o;
  float* lse;
  float sm_scale;
  float logits_soft_cap;
  std::uint32_t padded_batch_size;
  std::uint32_t num_qo_heads;
  std::int32_t q_stride_n;
  std::int32_t q_stride_h;
  std::int32_t window_left;
  std::int32_t* request_indices;
  std::int32_t* kv_tile_indices;
  std::int32_t* kv_chunk_size_ptr;
  bool* block_valid_mask;
  bool partition_kv;

  __device__ std::int32_t get_qo_len(std::int32_t) const { return 1; }
  __device__ std::int32_t get_kv_len(std::int32_t b) const { return paged_kv.kv_lens[b]; }
};

template <class T, int kHeadDim>
DecodeParams<T> make_decode_params(const CudaAttention& a, const ChunkedPlan& plan, const ChunkGrid& grid) {
  DecodeParams<T> p{};
  p.q = reinterpret_cast<T*>(a.q);
  p.paged_kv = {.page_size = fi::uint_fastdiv(static_cast<std::uint32_t>(a.page_size)),
                .num_heads = static_cast<std::uint32_t>(a.shape.kv_heads),
                .head_dim = kHeadDim,
                .batch_size = static_cast<std::uint32_t>(a.metadata.max_requests),
                .indptr = {static_cast<std::int32_t>(a.metadata.max_pages_per_request)},
                .k_data = reinterpret_cast<T*>(a.k_cache),
                .v_data = reinterpret_cast<T*>(a.v_cache),
                .indices = a.metadata.page_table,
                .kv_lens = a.metadata.kv_lens};
  p.o = reinterpret_cast<T*>(grid.split ? plan.partial_values : a.out);
  p.lse = grid.split ? plan.partial_lse : nullptr;
  p.sm_scale = a.scale;
  p.padded_batch_size = static_cast<std::uint32_t>(grid.blocks);
  p.num_qo_heads = static_cast<std::uint32_t>(a.shape.heads);
  p.q_stride_n = static_cast<std::int32_t>(a.shape.heads) * kHeadDim;
  p.q_stride_h = kHeadDim;
  p.window_left = -1;
  p.request_indices = plan.blocks.requests;
  p.kv_tile_indices = plan.blocks.chunks;
  p.kv_chunk_size_ptr = plan.blocks.chunk_size;
  p.block_valid_mask = reinterpret_cast<bool*>(plan.blocks.valid);
  p.partition_kv = grid.split;
  return p;
}

// As FlashInfer's BatchDecodeWithPagedKVCacheDispatched lays out a block.
template <class T, int kHeadDim, int kGroup>
struct DecodeKernel {
  static constexpr std::uint32_t kStages = 2;
  static constexpr std::uint32_t kVector = std::max<std::uint32_t>(16 / sizeof(T), kHeadDim / 32);
  static constexpr std::uint32_t kX = kHeadDim / kVector;
  static constexpr std::uint32_t kThreads = std::max<std::uint32_t>(128, kX* kGroup);
  static constexpr std::uint32_t kZ = kThreads / (kX * kGroup);
  static constexpr std::uint32_t kTile = kGroup == 1 ? 4 : 1;
  static constexpr std::size_t kBytes = 2 * kStages * kTile * kGroup * kZ * kHeadDim * sizeof(T) +
                                        std::max(kTile * kThreads * sizeof(T*), 2 * kGroup * kZ * sizeof(float));
  using Variant = fi::DefaultAttention</*custom_mask=*/false, /*sliding_window=*/false, /*soft_cap=*/false,
                                       /*alibi=*/false>;
  static constexpr auto kKernel =
      fi::BatchDecodeWithPagedKVCacheKernel<fi::PosEncodingMode::kNone, kStages, kTile, kVector, kX, kGroup, kZ,
                                            Variant, DecodeParams<T>>;

  static Result<int> residency() {
    return blocks_per_multiprocessor(reinterpret_cast<const void*>(kKernel), kThreads, kBytes, "attention (decode)");
  }
  static Result<std::unique_ptr<BoundOp>> bind(const CudaAttention& a, const CudaAttentionPlanner& planner) {
    TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, "attention (decode)"));
    const ChunkedPlan plan = planner.chunked_plan(a.shape);
    const ChunkGrid chunks = chunk_grid(a.num_rows, plan.limits);
    const DecodeParams<T> p = make_decode_params<T, kHeadDim>(a, plan, chunks);
    const cuda::MergeStates merge = make_merge(a, plan);
    const dim3 grid(static_cast<unsigned>(chunks.blocks), static_cast<unsigned>(a.shape.kv_heads));
    return make_cuda_op("attention (decode)", [=](cudaStream_t stream) {
      if (grid.x == 0) return;
      kKernel<<<grid, dim3(kX, kGroup, kZ), kBytes, stream>>>(p);
      if (p.partition_kv) cuda::launch_merge_states<T, T>(merge, stream);
    });
  }
};

// Calls f.operator()<kGroup>().
template <class F>
auto with_group(std::int64_t group, F&& f) -> decltype(f.template operator()<1>()) {
  switch (group) {
    case 1: return f.template operator()<1>();
    case 2: return f.template operator()<2>();
    case 4: return f.template operator()<4>();
    case 8: return f.template operator()<8>();
    default: return internal_error("attention (decode): " + std::to_string(group) + " query heads per KV head");
  }
}

template <class T, int kHeadDim>
Result<int> decode_residency(std::int64_t group) {
  return with_group(group, []<int kGroup>() { return DecodeKernel<T, kHeadDim, kGroup>::residency(); });
}

template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_decode(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  return with_group(a.group(), [&]<int kGroup>() { return DecodeKernel<T, kHeadDim, kGroup>::bind(a, planner); });
}

}  // namespace tessera::flashinfer
