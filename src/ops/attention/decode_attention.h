// Attention of requests of a single row on Hopper ("hopper", decode_attention.cuh): decode steps, and the decodes
// beside prompts in extend steps.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention.h"

namespace tessera {

class CudaAttentionPlanner;

// Head sizes of 64, 128, 256 and 512, up to 8 query heads to a KV head, bf16 and f16; windows, soft caps and sinks.
bool decode_attention_serves(const AttentionShape& shape, const AttentionTarget& target);

// Keys at whose multiples requests are cut, so that all warps of a block have as many.
std::int64_t decode_tile_keys(const AttentionShape& shape);
// Blocks that one multiprocessor of the current device runs at once. Precondition of this and what follows: it serves.
Result<int> decode_attention_residency(const AttentionShape& shape);

// Precondition: the planner chose it for the attention's kind of batches, in extend for single rows.
Result<std::unique_ptr<BoundOp>> bind_decode_attention(const CudaAttention& attention,
                                                       const CudaAttentionPlanner& planner);

}  // namespace tessera
