// Our prefill kernel on Hopper (prefill_attention.cuh). "fa3" runs it for the shapes that it supports.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention_planner.h"

namespace tessera {

// Query heads of one KV head that a cluster takes at once, one per block. The `head` of a work item counts groups of
// this size, and a worker is a cluster.
inline constexpr std::int64_t kPrefillHeads = 2;

// Rows of a tile of bind_short_prefill_attention().
inline constexpr std::int64_t kShortTileRows = 64;

// Returns whether the kernel supports a shape for which kFa3 is chosen: heads of 128, an even number of query heads per
// KV head, pages of a multiple of 16 tokens.
bool serves_prefill_attention(const AttentionShape& shape, std::int64_t page_size);

// Binds the kernel. Preconditions: serves_prefill_attention() accepts the shape, and the planner chose kFa3 for extend
// with tiles of fa3_tile_rows(128) rows.
Result<std::unique_ptr<BoundOp>> bind_prefill_attention(const CudaAttention& attention, const TilePlan& plan);
// Binds the kernel for forwards of few tokens. Precondition: the plan has tiles of kShortTileRows rows.
Result<std::unique_ptr<BoundOp>> bind_short_prefill_attention(const CudaAttention& attention, const TilePlan& plan);

}  // namespace tessera
