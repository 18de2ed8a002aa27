// What the CPU's kernels of operators that attend over pages share. They differ in where keys and values lie.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/ops/attention/attention_tile.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/contract/op_plan.h"

namespace tessera {

// Scratch of bind_attention_tiles() for keys of `head_dim`.
std::size_t attention_workspace_bytes(const BindArgs& args, std::int64_t head_dim);

// Cuts forwards into tiles and shares these out over the device's threads. `problem` says where operands lie, sizes,
// scale, window and softcap; the rest of it is filled in here, from the node's AttentionPlan among others.
Result<std::unique_ptr<BoundOp>> bind_attention_tiles(const BindArgs& args, AttentionProblem problem,
                                                      ir::DType cache_dtype, const char* name);

// An AttentionPlan, without a planner of the device's own.
extern const OpPlanner kCpuAttentionPlanner;

}  // namespace tessera
