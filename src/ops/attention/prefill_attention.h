// Our prefill kernel on Hopper (prefill_attention.cuh). "fa3" runs this kernel for the shapes that it supports, and
// FlashInfer's for the others.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention_planner.h"

namespace tessera {

// The number of query heads of one KV head that a cluster processes together, one per block. For this kernel, a worker
// is a cluster, and TileWork::head is the index of a group of kPrefillHeads heads.
inline constexpr std::int64_t kPrefillHeads = 2;

// The number of query rows in a tile of bind_short_prefill_attention().
inline constexpr std::int64_t kShortTileRows = 64;

// Work items are cut at multiples of so many keys.
inline constexpr std::int64_t kPrefillKeyBlock = 128;

// The memory for the results of a part (TileWork::parts): for each of 256 threads of each head's block 64 sums and the
// running max and sum of weights of two rows, in float32. Each of the block's eight warps has an arrival counter.
inline constexpr std::int64_t kPrefillPartBytes = kPrefillHeads * 256 * (64 + 4) * 4;
inline constexpr std::int64_t kPrefillPartArrivals = kPrefillHeads * 8;

// Returns whether the kernel supports the shape. Precondition: the planner chose kFa3 for it. The kernel supports heads
// of 128 elements, an even number of query heads per KV head, and page sizes that are multiples of 16 tokens.
bool serves_prefill_attention(const AttentionShape& shape, std::int64_t page_size);

// Binds the kernel. Preconditions: serves_prefill_attention() accepts the shape, and the planner chose kFa3 for extend
// with tiles of fa3_tile_rows(128) rows.
Result<std::unique_ptr<BoundOp>> bind_prefill_attention(const CudaAttention& attention, const TilePlan& plan);
// Binds the kernel for forwards of few tokens. Precondition: the plan has tiles of kShortTileRows rows.
Result<std::unique_ptr<BoundOp>> bind_short_prefill_attention(const CudaAttention& attention, const TilePlan& plan);

}  // namespace tessera
