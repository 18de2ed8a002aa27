// A group of a graph's operators as one row kernel (ops/fused/row_kernel.h).
//
// Which operators there is a form for: add, mul, scale, cast, copy, silu, gelu, softcap, split, rms_norm, rotary of
// whole heads, kv_store. Views need none: a row kernel sees memory by rows, whatever its shape.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/fused/row_kernel.h"

namespace tessera {

struct LoweredGroup {
  std::string name;  // "fused.add.rms_norm": the operators, each once
  RowKernel kernel;
  std::vector<ir::ValueId> operands;  // no views: what they are views of
  std::vector<bool> mutates;          // [operands]
  std::vector<ir::ValueId> results;
};

// For each value the one whose memory it is: itself, but for views.
std::vector<ir::ValueId> memory_of_values(const ir::Graph& graph, const ir::OpTable& ops);

// `nodes` in execution order, none a view; `stored`, by value, are the results that others read. kUnimplemented, with
// the reason, where there is no row kernel for them. `memory` is memory_of_values(graph).
Result<LoweredGroup> lower_group(const ir::Graph& graph, std::span<const ir::ValueId> memory,
                                 std::span<const ir::NodeId> nodes, const std::vector<bool>& stored);

}  // namespace tessera
