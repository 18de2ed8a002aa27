// Lowers a group of a graph's operators to one row kernel (ops/fused/row_kernel.h).
//
// Supported operators: add, mul, scale, cast, copy, silu, gelu, softcap, split, rms_norm, rotary of whole heads,
// kv_store. Views need no code, because a row kernel divides the memory of a value into rows regardless of the value's
// shape.
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
  std::string name;  // names each operator once, such as "fused.add.rms_norm"
  RowKernel kernel;
  std::vector<ir::ValueId> operands;  // for a view, the value whose memory it shows
  std::vector<bool> mutates;          // for each operand, whether the kernel writes it
  std::vector<ir::ValueId> results;
};

// Returns for each value the value that owns its memory. A view does not own its memory. Every other value does.
std::vector<ir::ValueId> memory_of_values(const ir::Graph& graph, const ir::OpTable& ops);

// Lowers `nodes`, which are in execution order and contain no views. `stored` has an entry for each value. The entry is
// true if nodes outside of the group read the value. `memory` is memory_of_values(graph). Returns kUnimplemented, with
// the reason, if no row kernel can compute the nodes.
Result<LoweredGroup> lower_group(const ir::Graph& graph, std::span<const ir::ValueId> memory,
                                 std::span<const ir::NodeId> nodes, const std::vector<bool>& stored);

}  // namespace tessera
