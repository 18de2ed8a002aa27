// Passes need these properties of operators. The operators' declarations do not give them.
#pragma once

#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns whether the node's two operands have the same type and may be swapped without changing a bit of the result.
bool commutes(const ir::Graph& graph, const ir::Node& node);

// Returns whether the node exchanges data with the same node on other ranks. Passes leave these nodes alone, because
// the graphs of ranks may differ and all ranks must run their exchanges in the same order.
bool meets_other_ranks(const ir::Node& node, const ir::OpTable& ops);

// Returns whether operators and attributes are equal. For some booleans, false equals an absent attribute.
bool same_attributes(const ir::Node& a, const ir::Node& b);

}  // namespace tessera
