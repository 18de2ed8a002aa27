// FlashInfer's FlashAttention-2 over our page table. A tile packs the query heads of one KV head, so the same kernel
// runs extend (in tiles of 64 rows) and decode (in tiles of 16 rows, with keys cut into chunks).
//
// Deterministic forwards run the extend kernel for decode too, so that the values of a token's keys are always added in
// the same order.
//
// The grid of a recorded launch depends only on the bucket, which is the size to which the forward is padded. A block
// that a forward does not need ends when it reads a 0 in BlockPlan::valid.
#pragma once

#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "tessera/ops/attention/attention_merge.cuh"
#include "tessera/ops/attention/cuda_attention_planner.h"
#include "tessera/ops/attention/flashinfer/kernels.h"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera::flashinfer {

namespace fi = ::flashinfer;

// The parameters of FlashInfer's kernel, with the names that the kernel expects. Lengths come from attention's
// metadata. `paged_kv` has the whole page table, with one row for each request.
template <class T>
struct Fa2Params {
  using DTypeQ = T;
  using DTypeKV = T;
  using DTypeO = T;
  using IdType = std::int32_t;

  T* q;
  fi::paged_kv_t<T, std::int32_t> paged_kv;
  std::int32_t* q_indptr;
  T* o;
  float* lse;
  fi::uint_fastdiv group_size;
  float sm_scale;
  float logits_soft_cap;
  std::uint32_t num_qo_heads;
  std::int32_t q_stride_n;
  std::int32_t q_stride_h;
  std::int32_t window_left;  // -1: no window
  std::int32_t* request_indices;
  std::int32_t* qo_tile_indices;
  std::int32_t* kv_tile_indices;
  std::int32_t* o_indptr;
  bool* block_valid_mask;
  std::int32_t* kv_chunk_size_ptr;
  bool partition_kv;
  const std::int32_t* kv_lens;
  const float* sinks;  // [num_qo_heads]; null: no sinks
  std::int32_t num_rows;

  // Returns 0 for a request whose rows do not fit in the bucket, so that none of its rows is computed. Only a defect of
  // the runner causes this.
  __host__ __device__ std::uint32_t get_qo_len(std::uint32_t b) const {
    return q_indptr[b + 1] <= num_rows ? static_cast<std::uint32_t>(q_indptr[b + 1] - q_indptr[b]) : 0;
  }
  __host__ __device__ std::uint32_t get_kv_len(std::uint32_t b) const { return static_cast<std::uint32_t>(kv_lens[b]); }
};

// Casts away const: FlashInfer takes pointers to mutable data, but writes only to o and lse.
template <class T>
T* writable(const T* p) {
  return const_cast<T*>(p);
}

template <class T, int kHeadDim>
Fa2Params<T> make_fa2_params(const CudaAttention& a, const CudaAttentionPlanner& planner, const BlockPlan& blocks) {
  Fa2Params<T> p;
  p.q = reinterpret_cast<T*>(a.q);
  p.paged_kv = fi::paged_kv_t<T, std::int32_t>(
      static_cast<std::uint32_t>(a.shape.kv_heads), static_cast<std::uint32_t>(a.page_size), kHeadDim,
      static_cast<std::uint32_t>(a.metadata.max_requests), fi::QKVLayout::kNHD, reinterpret_cast<T*>(a.k_cache),
      reinterpret_cast<T*>(a.v_cache), writable(a.metadata.page_table), writable(planner.page_starts()),
      /*last_page_len=*/nullptr);
  p.q_indptr = writable(a.metadata.query_starts);
  p.o = reinterpret_cast<T*>(a.out);
  p.lse = nullptr;
  p.group_size = fi::uint_fastdiv(static_cast<std::uint32_t>(a.group()));
  p.sm_scale = a.scale;
  p.logits_soft_cap = static_cast<float>(a.shape.softcap);
  p.num_qo_heads = static_cast<std::uint32_t>(a.shape.heads);
  p.q_stride_n = static_cast<std::int32_t>(a.shape.heads) * kHeadDim;
  p.q_stride_h = kHeadDim;
  p.window_left = static_cast<std::int32_t>(a.shape.window) - 1;
  p.request_indices = blocks.requests;
  p.qo_tile_indices = blocks.tiles;
  p.kv_tile_indices = blocks.chunks;
  p.o_indptr = p.q_indptr;
  p.block_valid_mask = reinterpret_cast<bool*>(blocks.valid);
  p.kv_chunk_size_ptr = blocks.chunk_size;
  p.partition_kv = false;
  p.kv_lens = a.metadata.kv_lens;
  p.sinks = a.sinks;
  p.num_rows = static_cast<std::int32_t>(a.num_rows);
  return p;
}

// Adds sinks to a variant of FlashInfer's attention. A sink acts as a key with a zero value. Let 2^s be the weight of
// the sink and 2^s_j the weights of the keys, whose values are v_j. A row has a running max m and a sum d of 2^(s_j -
// m). After the row's last key the max becomes m' = max(m, s), the sums are multiplied by 2^(m - m'), and 2^(s - m') is
// added to d. The result is exactly that of a softmax over all scores:
//   Σ 2^(s_j - m) v_j · 2^(m - m') / (d · 2^(m - m') + 2^(s - m')) = Σ 2^s_j v_j / (2^s + Σ 2^s_j).
// If keys are cut into chunks, only the first chunk has the sink, and the chunk's log-sum-exp includes the sink. So the
// merge needs no special case.
template <class Base>
struct WithSinks : Base {
  template <class Params>
  __device__ __host__ WithSinks(const Params& params, std::uint32_t request, std::uint8_t* shared)
      : Base(params, request, shared) {}

  REGISTER_M_D_UPDATE(params, kv_tile_idx, qo_head_idx, m, d, scale, {
    scale = 1.0f;
    if (params.sinks == nullptr || kv_tile_idx != 0) return;
    const float sink = params.sinks[qo_head_idx] * fi::math::log2e;
    const float greatest = fmaxf(m, sink);
    scale = m == -fi::math::inf ? 0.0f : fi::math::ptx_exp2(m - greatest);
    d = d * scale + fi::math::ptx_exp2(sink - greatest);
    m = greatest;
  })

  REGISTER_OUTPUT_TRANSFORM(params, output, batch_idx, qo_idx, qo_head_idx, m, d, scale, {
    const float inverse = m != -fi::math::inf ? fi::math::ptx_rcp(d) : 0.0f;
    return output * scale * inverse;
  })
};

// The variant without a softcap. If there is no window, window_left is -1, and no key is masked by a window.
using Fa2Plain = fi::DefaultAttention</*custom_mask=*/false, /*sliding_window=*/true, /*soft_cap=*/false,
                                      /*alibi=*/false>;

// The variant with a softcap: cap · tanh(scale · q·k / cap). FlashInfer's own variant uses the hardware's tanh. The
// relative error of this tanh, 2^-11, changes a score of 40 by 0.02. The error of this variant is about 1e-7 of the
// cap.
struct Fa2Capped : Fa2Plain {
  // 2 · scale / cap · log2(e), so that tanh(scale · q·k / cap) = 1 - 2 / (1 + 2^(q·k · to_argument))
  float to_argument;

  template <class Params>
  __device__ __host__ Fa2Capped(const Params& params, std::uint32_t request, std::uint8_t* shared)
      : Fa2Plain(params, request, shared), to_argument(2 * params.sm_scale / params.logits_soft_cap * fi::math::log2e) {
    sm_scale_log2 = params.logits_soft_cap * fi::math::log2e;
  }

  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    return 1.0f - 2.0f * fi::math::ptx_rcp(1.0f + fi::math::ptx_exp2(logits * to_argument));
  })
};

// The variant for deterministic forwards, which use FA2 only without a window. A tile goes on to the last key that any
// of its rows sees, but the sums of a row must not change after the row's own last key. For later keys FlashInfer
// multiplies the sums by 2^(m · scale - m · scale), where m is the row's running max. A fused multiply-add computes
// this exponent. It rounds one of the two products and not the other, so the factor is not always exactly 1. Therefore
// the kernel gets a scale of 1, and this variant scales the scores itself.
struct Fa2Exact : fi::AttentionVariantBase {
  static constexpr bool use_softmax = true;

  uint32_t qo_len, kv_len;
  uint32_t window_left;
  float sm_scale_log2 = 1;
  float scale;

  template <class Params>
  __device__ __host__ Fa2Exact(const Params& params, std::uint32_t request, std::uint8_t*)
      : qo_len(params.get_qo_len(request)),
        kv_len(params.get_kv_len(request)),
        window_left(kv_len),
        scale(params.sm_scale * fi::math::log2e) {}

  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx,
                            { return logits * scale; })
};

template <int kTileRows, int kHeadDim, class T, class Variant>
struct Fa2Kernel {
  static constexpr std::uint32_t kWarpsKeys = fi::get_num_warps_kv(kTileRows);
  // A block has shared memory for 16 · kWarpsKeys · kMmaKeys keys. This number is as large as 99 KiB of shared memory
  // allow. In extend with heads of up to 128 elements, two blocks share the 99 KiB.
  static constexpr std::uint32_t kMmaKeys = kTileRows == 16   ? 256 / kHeadDim
                                            : kHeadDim == 64  ? 8
                                            : kHeadDim == 128 ? 4
                                                              : 2;
  using Traits = fi::KernelTraits<fi::MaskMode::kCausal, kTileRows, fi::get_num_mma_q(kTileRows), kMmaKeys,
                                  kHeadDim / 16, kHeadDim / 16, fi::get_num_warps_q(kTileRows), kWarpsKeys,
                                  fi::PosEncodingMode::kNone, T, T, T, float, std::int32_t, WithSinks<Variant>>;
  static_assert(!Traits::IsInvalid());
  static constexpr auto kKernel = fi::BatchPrefillWithPagedKVCacheKernel<Traits, Fa2Params<T>>;
  static constexpr std::size_t kBytes = sizeof(typename Traits::SharedStorage);

  static Status prepare() {
    return allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, "attention (fa2)");
  }
  // Launches the kernel. If `early`, blocks may start before the preceding kernels have ended. Early blocks first read
  // the plan's lists, which only the host writes, and then wait for the preceding kernels. A block without work ends
  // without waiting, but at least one block of an early launch must wait (cuda_launch.cuh). So if `early` is true, at
  // least one block must have work. The exception is a warm-up launch, whose results are not used.
  static void launch(const Fa2Params<T>& p, std::int64_t blocks, std::int64_t kv_heads, bool early,
                     cudaStream_t stream) {
    const cuda::LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks), 1, static_cast<unsigned>(kv_heads)),
                                  .block = dim3(32, fi::get_num_warps_q(kTileRows), kWarpsKeys)};
    cuda::launch_with(kKernel, shape, kBytes, early && cuda::can_launch_early(), stream, p);
  }
};

template <class T, int kHeadDim, class Variant>
Result<std::unique_ptr<BoundOp>> make_fa2_extend(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  using Kernel = Fa2Kernel<kFa2TileRows, kHeadDim, T, Variant>;
  TRY(Kernel::prepare());
  const Fa2Params<T> p = make_fa2_params<T, kHeadDim>(a, planner, planner.block_plan(a.shape));
  const std::int64_t blocks = most_tiles(a.num_rows * a.group(), a.max_requests(), kFa2TileRows);
  return make_cuda_op("attention (fa2)", [p, blocks, kv_heads = a.shape.kv_heads](cudaStream_t stream) {
    if (blocks > 0) Kernel::launch(p, blocks, kv_heads, /*early=*/false, stream);
  });
}

// Returns the arguments of the launch that merges the partial results of each row's chunks. In a decode step, row r is
// request r.
inline cuda::MergeStates make_merge(const CudaAttention& a, const ChunkedPlan& plan) {
  return {.values = plan.partial_values,
          .lse = plan.partial_lse,
          .part_starts = plan.blocks.starts,
          .out_rows = nullptr,
          .parts_per_row = 0,
          .num_requests = a.metadata.num_requests,
          .query_starts = a.metadata.query_starts,
          .out = a.out,
          .rows = static_cast<int>(a.num_rows),
          .heads = static_cast<int>(a.shape.heads),
          .head_dim = static_cast<int>(a.shape.head_dim)};
}

// Makes the parameters of the decode kernel. If `split` is true, the kernel writes partial results to the plan's memory
// instead of its final output.
template <class T, int kHeadDim>
Fa2Params<T> make_chunked_params(const CudaAttention& a, const CudaAttentionPlanner& planner, const ChunkedPlan& plan,
                                 bool split) {
  Fa2Params<T> p = make_fa2_params<T, kHeadDim>(a, planner, plan.blocks);
  if (!split) return p;
  p.partition_kv = true;
  p.o = reinterpret_cast<T*>(plan.partial_values);
  p.lse = plan.partial_lse;
  p.o_indptr = plan.blocks.starts;
  return p;
}

template <class T, int kHeadDim, class Variant>
Result<std::unique_ptr<BoundOp>> make_fa2_decode(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  using Kernel = Fa2Kernel<kFa2DecodeTileRows, kHeadDim, T, Variant>;
  TRY(Kernel::prepare());
  const ChunkedPlan plan = planner.chunked_plan(a.shape);
  const ChunkGrid grid = chunk_grid(a.num_rows, plan.limits);
  const Fa2Params<T> p = make_chunked_params<T, kHeadDim>(a, planner, plan, grid.split);
  const cuda::MergeStates merge = make_merge(a, plan);
  const auto launches = [p, grid, merge, kv_heads = a.shape.kv_heads](cudaStream_t stream) {
    if (grid.blocks == 0) return;
    Kernel::launch(p, grid.blocks, kv_heads, /*early=*/true, stream);
    if (grid.split) cuda::launch_merge_states<T, T>(merge, stream);
  };
  return make_cuda_op("attention (fa2)", launches, grid.split ? 1 : 0);
}

// Makes the operator for the single-row requests of an extend step. They are computed as in decode, but their rows may
// lie anywhere in the forward.
template <class T, int kHeadDim, class Variant>
Result<std::unique_ptr<BoundOp>> make_fa2_single_rows_of(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  using Kernel = Fa2Kernel<kFa2DecodeTileRows, kHeadDim, T, Variant>;
  TRY(Kernel::prepare());
  const ChunkedPlan plan = planner.chunked_plan(a.shape);
  const Fa2Params<T> p = make_chunked_params<T, kHeadDim>(a, planner, plan, /*split=*/true);
  cuda::MergeStates merge = make_merge(a, plan);
  merge.out_rows = a.metadata.query_starts;
  TRY(cuda::load_merge_states<T, T>(kHeadDim));
  const std::int64_t most_requests = a.max_requests();
  const std::int64_t most_blocks = single_row_grid(most_requests, plan.limits).blocks;
  const ExtendWork* work = planner.extend_work(a.shape);
  return make_cuda_op("attention (fa2, single rows)", [=, kv_heads = a.shape.kv_heads](cudaStream_t stream) {
    const bool recording = is_recording(stream);
    const std::int64_t blocks = recording ? most_blocks : work->single_blocks;
    if (blocks == 0) return;
    Kernel::launch(p, blocks, kv_heads, /*early=*/false, stream);
    cuda::MergeStates rows = merge;
    rows.rows = static_cast<int>(recording ? most_requests : work->single_requests);
    cuda::launch_merge_states<T, T>(rows, stream);
  });
}

// Calls f.operator()<Variant>() for the layer's variant. Precondition: fa2_serves() accepts its shape.
template <int kHeadDim, class F>
Result<std::unique_ptr<BoundOp>> with_cap(const CudaAttention& a, F&& f) {
  if constexpr (kHeadDim >= kLeastCappedHeadDim) {
    if (a.shape.softcap > 0) return f.template operator()<Fa2Capped>();
  }
  return f.template operator()<Fa2Plain>();
}

template <class T, int kHeadDim>
Result<int> find_fa2_decode_residency() {
  using Kernel = Fa2Kernel<kFa2DecodeTileRows, kHeadDim, T, Fa2Plain>;
  return blocks_per_multiprocessor(reinterpret_cast<const void*>(Kernel::kKernel), Kernel::Traits::NUM_THREADS,
                                   Kernel::kBytes, "attention (fa2)");
}

template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_fa2(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  if (a.deterministic) return make_fa2_extend<T, kHeadDim, Fa2Exact>(a, planner);
  return with_cap<kHeadDim>(a, [&]<class Variant>() {
    if (a.kind == BatchKind::kDecode) return make_fa2_decode<T, kHeadDim, Variant>(a, planner);
    return make_fa2_extend<T, kHeadDim, Variant>(a, planner);
  });
}

template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_fa2_single_rows(const CudaAttention& a, const CudaAttentionPlanner& planner) {
  return with_cap<kHeadDim>(a,
                            [&]<class Variant>() { return make_fa2_single_rows_of<T, kHeadDim, Variant>(a, planner); });
}

}  // namespace tessera::flashinfer
