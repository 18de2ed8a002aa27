// Binds attention for requests of a single row on Hopper ("hopper", decode_attention.cuh). All requests of a decode
// step are such requests. In an extend step they are the decodes beside the prompts.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention.h"

namespace tessera {

class CudaAttentionPlanner;

// Returns whether the kernel supports the shape on the target. The kernel needs Hopper and page sizes that are
// multiples of 16 tokens. It supports head sizes of 64, 128, 256 and 512, and up to 8 query heads per KV head. Queries
// are in bf16 or f16, and the cache has the queries' type or E4M3. Windows, softcaps and sinks are supported.
bool decode_attention_serves(const AttentionShape& shape, const AttentionTarget& target);

// Returns the number of keys in a tile. The keys of a request are cut only between tiles, so that the warps of a block
// have equal numbers of keys.
std::int64_t decode_tile_keys(const AttentionShape& shape);
// Returns the number of blocks that one multiprocessor of the current device runs at once. Precondition of this and the
// following function: decode_attention_serves() accepts the shape.
Result<int> decode_attention_residency(const AttentionShape& shape);

// Binds the kernel. Precondition: the planner chose this kernel for batches of attention.kind, or for the single-row
// requests of extend steps.
Result<std::unique_ptr<BoundOp>> bind_decode_attention(const CudaAttention& attention,
                                                       const CudaAttentionPlanner& planner);

}  // namespace tessera
