// FlashInfer's FlashAttention-3 for Hopper over our page table. Every multiprocessor runs one persistent block, which
// processes the work items that the planner assigned to it. A recorded launch works for any forward of the bucket: the
// grid is the number of multiprocessors, the tensor map of the queries covers all rows of the bucket, and lengths are
// read from device memory.
#pragma once

#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <type_traits>

#include "tessera/ops/attention/cuda_attention_planner.h"
#include "tessera/ops/attention/flashinfer/fa3_epilogue.cuh"
#include "tessera/ops/attention/flashinfer/kernels.h"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera::flashinfer {

namespace fi = ::flashinfer;

// Replaces FlashInfer's schedulers. Work items are read from the planner's list, and lengths from attention's metadata.
struct TileScheduler {
  struct Params {
    const std::int32_t* starts;  // [gridDim.x + 1]
    const TileWork* works;
    const std::int32_t* query_starts;
    const std::int32_t* kv_lens;
    int max_pages;
    int num_rows;
    cutlass::FastDivmod group;
  };

  struct WorkTileInfo {
    int at;
    int end;

    CUTLASS_DEVICE bool is_valid(const Params&) const { return at < end; }

    // Returns the query tile, query head, KV head, first row, first entry of the page table, query length, KV length
    // and request.
    CUTLASS_DEVICE auto get_block_coord(const Params& p) const {
      const TileWork work = p.works[at];
      const int begin = p.query_starts[work.request];
      const int query_end = p.query_starts[work.request + 1];
      // A request whose rows do not fit in the bucket is a defect of the runner. Its query length becomes 0, so that
      // none of its tiles is computed.
      const int query_len = query_end <= p.num_rows ? query_end - begin : 0;
      const int head = work.head;
      return cute::tuple{static_cast<int>(work.tile), head,      p.group.divide(head),    begin,
                         work.request * p.max_pages,  query_len, p.kv_lens[work.request], work.request};
    }
  };

  CUTLASS_DEVICE WorkTileInfo get_initial_work(const Params& p) const {
    return {p.starts[blockIdx.x], p.starts[blockIdx.x + 1]};
  }
  template <bool is_producer = false>
  CUTLASS_DEVICE WorkTileInfo get_next_work(const Params&, const WorkTileInfo& work) const {
    return {work.at + 1, work.end};
  }
  CUTLASS_DEVICE void init_consumer() const {}
  CUTLASS_DEVICE void prefetch_next_work(const Params&, WorkTileInfo&) const {}
  CUTLASS_DEVICE void broadcast_next_work(WorkTileInfo&) const {}
};

struct Fa3Scale {
  float sm_scale;
};

// Returns the number of keys in a tile, as tuned by FlashInfer.
constexpr int fa3_tile_keys(int head_dim) { return head_dim == 256 ? 32 : 96; }

template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_fa3(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  using Element = fi::cutlass_dtype_t<T>;
  using Traits = fi::AttentionKernelTraits</*USE_TMA_LOAD_KV=*/false, kHeadDim, kHeadDim, fa3_tile_rows(kHeadDim),
                                           fa3_tile_keys(kHeadDim), /*NUM_STAGES=*/2, Element, Element, Element,
                                           std::int32_t, fi::StandardAttention>;
  using Mainloop = fi::SparseCollectiveMainloop<Fa3Scale, Traits, /*CAUSAL=*/true>;
  using Epilogue = Fa3Epilogue<Traits>;

  const auto rows = static_cast<int>(a.num_rows);
  const auto heads = static_cast<int>(a.shape.heads);
  const auto kv_heads = static_cast<int>(a.shape.kv_heads);
  const std::int64_t kv_stride = a.shape.kv_heads * kHeadDim;
  const std::int64_t page_stride = a.page_size * kv_stride;
  const auto layout = [&](int tokens, int n) {
    return fi::get_gmem_layout(tokens, n, kHeadDim, n * kHeadDim, kHeadDim);
  };
  const auto mainloop = Mainloop::to_underlying_arguments(
      {reinterpret_cast<const Element*>(a.q), layout(rows, heads), reinterpret_cast<const Element*>(a.k_cache),
       layout(0, kv_heads), reinterpret_cast<const Element*>(a.v_cache), layout(0, kv_heads), a.metadata.page_table,
       /*window_left=*/-1, page_stride, page_stride, static_cast<std::uint32_t>(a.page_size), Fa3Scale{a.scale}});
  const auto epilogue = Epilogue::to_underlying_arguments(
      {reinterpret_cast<Element*>(a.out), layout(rows, heads), /*lse=*/nullptr, fi::get_lse_gmem_layout(rows, heads)});
  const TilePlan plan = planner.tile_plan(a.shape);
  const TileScheduler::Params scheduler{plan.starts,
                                        plan.works,
                                        a.metadata.query_starts,
                                        a.metadata.kv_lens,
                                        static_cast<int>(a.metadata.max_pages_per_request),
                                        rows,
                                        cutlass::FastDivmod(heads / kv_heads)};

  constexpr auto kKernel = fi::PrefillWithKVCacheKernel<Mainloop, Epilogue, Traits, /*LEFT_SLIDING_WINDOW=*/false,
                                                        /*CAUSAL=*/true, TileScheduler>;
  constexpr std::size_t kBytes = sizeof(typename Traits::SharedStorage);
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, "attention (fa3)"));
  const dim3 grid(static_cast<unsigned>(plan.workers));
  return make_cuda_op("attention (fa3)", [=](cudaStream_t stream) {
    kKernel<<<grid, Traits::NUM_WARPS * 32, kBytes, stream>>>(mainloop, epilogue, scheduler);
  });
}

}  // namespace tessera::flashinfer
