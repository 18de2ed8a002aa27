// Binds attention over a paged cache on the CPU, for `attention` and `latent_attention`. These operators differ in
// where keys and values lie.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/ops/attention/attention_tile.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/contract/op_plan.h"

namespace tessera {

// Returns the bytes of scratch that bind_attention_tiles() needs for keys of `head_dim` elements.
std::size_t attention_workspace_bytes(const BindArgs& args, std::int64_t head_dim);

// Binds an operator that cuts each forward into tiles and distributes the tiles over the device's threads. The caller
// sets the addresses, sizes, scale, window and softcap of `problem`. This function and the bound operator set the other
// members.
Result<std::unique_ptr<BoundOp>> bind_attention_tiles(const BindArgs& args, AttentionProblem problem,
                                                      ir::DType cache_dtype, const char* name);

// Makes an AttentionPlan without a device planner.
extern const OpPlanner kCpuAttentionPlanner;

}  // namespace tessera
