// FlashInfer's attention kernels behind BoundOp. Each family is a template in NAME.cuh, instantiated by small files of
// their own (an instantiation of FA3 takes half a minute and 3 GB to compile) and dispatched in kernels.cpp.
//
// Every launch is a function of addresses and of sizes of the bucket: lengths, and what is planned from them, are read
// from device memory when the kernel runs. So each may be recorded once and replayed with any lengths.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention.h"

namespace tessera {

class CudaAttentionPlanner;

namespace flashinfer {

inline constexpr std::int64_t kFa2TileRows = 64;        // of extend; a row is one query head of one token
inline constexpr std::int64_t kFa2DecodeTileRows = 16;  // the most query heads that read one KV head

// Soft caps take instantiations of their own, which are made for the head sizes of models that have one (Gemma 2).
inline constexpr std::int64_t kLeastCappedHeadDim = 128;

// FA3's rows of a tile, which is of one query head.
constexpr std::int64_t fa3_tile_rows(std::int64_t head_dim) { return head_dim == 64 ? 192 : 128; }

bool fa3_serves(const AttentionShape& shape, int compute_capability);
bool fa2_serves(const AttentionShape& shape, BatchKind kind, int compute_capability);

// Precondition: it serves the shape, and the planner chose it.
Result<std::unique_ptr<BoundOp>> bind_fa3(const CudaAttention& attention, const CudaAttentionPlanner& planner);
Result<std::unique_ptr<BoundOp>> bind_fa2(const CudaAttention& attention, const CudaAttentionPlanner& planner);

// Extend's requests of a single row alone. Precondition: the planner has work for them (extend_work()).
Result<std::unique_ptr<BoundOp>> bind_fa2_single_rows(const CudaAttention& attention,
                                                      const CudaAttentionPlanner& planner);

// Blocks of FA2's decode that one multiprocessor of the current device runs at once.
Result<int> fa2_decode_residency(const AttentionShape& shape);

// The instantiations. T: __nv_bfloat16 or __half.
template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_fa3(const CudaAttention& attention, const CudaAttentionPlanner& planner);
template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_fa2(const CudaAttention& attention, const CudaAttentionPlanner& planner);
template <class T, int kHeadDim>
Result<std::unique_ptr<BoundOp>> make_fa2_single_rows(const CudaAttention& attention,
                                                      const CudaAttentionPlanner& planner);
template <class T, int kHeadDim>
Result<int> find_fa2_decode_residency();

}  // namespace flashinfer
}  // namespace tessera
