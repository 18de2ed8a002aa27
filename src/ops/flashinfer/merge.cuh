// Joining the chunks of a decode step.
#pragma once

#include "tessera/ops/attention_merge.cuh"
#include "tessera/ops/cuda_attention_planner.h"

namespace tessera::flashinfer {

inline cuda::MergeStates make_merge(const CudaAttention& a, const ChunkedPlan& plan) {
  return {.values = plan.partial_values,
          .lse = plan.partial_lse,
          .part_starts = plan.blocks.starts,
          .parts_per_row = 0,
          .num_requests = a.metadata.num_requests,
          .query_starts = a.metadata.query_starts,
          .out = a.out,
          .rows = static_cast<int>(a.num_rows),
          .heads = static_cast<int>(a.shape.heads),
          .head_dim = static_cast<int>(a.shape.head_dim)};
}

}  // namespace tessera::flashinfer
