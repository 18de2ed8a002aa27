// Our prefill kernel on Hopper, "fa3" (prefill_attention.cuh).
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention_planner.h"

namespace tessera {

// The number of blocks in a cluster. A worker of the plan is a cluster.
inline constexpr std::int64_t kPrefillBlocks = 2;

// Returns how many units the tiles of a shape have. A unit is a pair of query heads of one KV head. If a KV head has an
// odd number of query heads, its last query head has units that cover two tiles.
inline TileUnits prefill_units(const AttentionShape& shape) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  return {.per_tile = shape.kv_heads * (group / 2), .per_pair = shape.kv_heads * (group % 2)};
}

// The number of query rows in a tile of bind_prefill_attention().
inline constexpr std::int64_t kPrefillTileRows = 128;

// The number of query rows in a tile of bind_short_prefill_attention().
inline constexpr std::int64_t kShortTileRows = 64;

// Returns the number of keys of a tile. Work items are cut at multiples of this number.
constexpr std::int64_t prefill_key_block(std::int64_t head_dim) { return head_dim == 256 ? 80 : 128; }

// Returns the bytes of one part's results (TileWork::parts). A part has kPrefillBlocks blocks of 256 threads. A thread
// stores head_dim / 2 sums, and the running max and the sum of weights of two rows, all in float32. Each of a block's
// eight warps has an arrival counter.
constexpr std::int64_t prefill_part_bytes(std::int64_t head_dim) {
  return kPrefillBlocks * 256 * (head_dim / 2 + 4) * 4;
}
inline constexpr std::int64_t kPrefillPartArrivals = kPrefillBlocks * 8;

// Returns whether the kernel supports the shape on the target. The kernel needs Hopper and page sizes that are
// multiples of 16 tokens. It supports heads of 64, 128 and 256 elements. Queries are in bf16 or f16. The cache has the
// same type, or f8e4m3 with heads of 64 and 128 elements. Windows and sinks are supported, softcaps are not.
bool serves_prefill_attention(const AttentionShape& shape, const AttentionTarget& target);

// Returns whether bind_short_prefill_attention() supports the shape. Precondition: serves_prefill_attention() accepts
// the shape.
inline bool has_short_prefill_tiles(const AttentionShape& shape) { return shape.head_dim <= 128; }

// Binds the kernel. Preconditions: serves_prefill_attention() accepts the shape, and the planner chose kFa3 for extend
// with tiles of kPrefillTileRows rows.
Result<std::unique_ptr<BoundOp>> bind_prefill_attention(const CudaAttention& attention, const TilePlan& plan);
// Binds the kernel for forwards of few tokens. Preconditions: has_short_prefill_tiles() accepts the shape, and the plan
// has tiles of kShortTileRows rows.
Result<std::unique_ptr<BoundOp>> bind_short_prefill_attention(const CudaAttention& attention, const TilePlan& plan);

}  // namespace tessera
