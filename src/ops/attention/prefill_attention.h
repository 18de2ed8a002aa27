// Our kernel for prompts on Hopper (prefill_attention.cuh): what "fa3" runs where it serves.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention_planner.h"

namespace tessera {

// Query heads of one KV head that a cluster of as many blocks takes at once. A work's `head` counts them together, and
// a worker is a cluster.
inline constexpr std::int64_t kPrefillHeads = 2;

// Rows of a tile of bind_short_prefill_attention().
inline constexpr std::int64_t kShortTileRows = 64;

// Of shapes for which kFa3 is chosen: heads of 128, an even number of them to a KV head, in pages of a multiple of 16
// tokens.
bool serves_prefill_attention(const AttentionShape& shape, std::int64_t page_size);

// Precondition: it serves the shape, and the planner chose kFa3 for extend. The plan is of tiles of fa3_tile_rows(128)
// rows.
Result<std::unique_ptr<BoundOp>> bind_prefill_attention(const CudaAttention& attention, const TilePlan& plan);
// For forwards of few tokens: of a plan of tiles of kShortTileRows.
Result<std::unique_ptr<BoundOp>> bind_short_prefill_attention(const CudaAttention& attention, const TilePlan& plan);

}  // namespace tessera
