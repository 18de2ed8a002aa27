// Binds FlashInfer's attention kernels as BoundOps. Each kernel family is a template in NAME.cuh. A separate file,
// NAME.cu, instantiates it, because FlashInfer's headers take long to compile. kernels.cpp dispatches to the
// instantiations.
//
// Every launch depends only on addresses and on the sizes to which the forward is padded (the bucket). When the kernel
// runs, it reads the lengths and the work lists from device memory. So a launch can be recorded once and replayed with
// any lengths.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention.h"

namespace tessera {

class CudaAttentionPlanner;

namespace flashinfer {

inline constexpr std::int64_t kFa2TileRows = 64;  // rows of a tile in extend; a row is one query head of one token
// The number of rows of a tile in decode. It is also the maximum number of query heads of a KV head.
inline constexpr std::int64_t kFa2DecodeTileRows = 16;

// Softcaps need their own instantiations. There are such instantiations only for head sizes from this one up, because
// no model with a softcap (Gemma 2) has smaller heads.
inline constexpr std::int64_t kLeastCappedHeadDim = 128;

bool fa2_serves(const AttentionShape& shape, BatchKind kind, int compute_capability);

// Binds FA2's kernel to the operands of `attention`. Preconditions: the kernel supports the shape, and the planner
// chose this kernel.
Result<std::unique_ptr<BoundOp>> bind_fa2(const CudaAttention& attention, const CudaAttentionPlanner& planner);

// Binds the kernel that computes only the single-row requests of an extend step. Precondition: extend_work() of the
// planner is not null.
Result<std::unique_ptr<BoundOp>> bind_fa2_single_rows(const CudaAttention& attention,
                                                      const CudaAttentionPlanner& planner);

// Returns the number of blocks of FA2's decode that one multiprocessor of the current device runs at once.
Result<int> fa2_decode_residency(const AttentionShape& shape);

// The templates that the functions above call. NAME.cuh defines make_NAME(), and NAME.cu instantiates it. T is
// __nv_bfloat16 or __half.
template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_fa2(const CudaAttention& attention, const CudaAttentionPlanner& planner);
template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_fa2_single_rows(const CudaAttention& attention,
                                                      const CudaAttentionPlanner& planner);
template <class T, int kHeadDim>
Result<int> find_fa2_decode_residency();

}  // namespace flashinfer
}  // namespace tessera
