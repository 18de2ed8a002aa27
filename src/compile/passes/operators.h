// Properties of operators that passes need beyond the operators' declarations.
#pragma once

#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns whether the node's two operands may be swapped without changing a bit of the result, given equal types.
bool commutes(const ir::Graph& graph, const ir::Node& node);

// Returns whether the node waits for the same node of other ranks. Passes leave these nodes alone, because ranks'
// graphs may differ, and all ranks must keep meeting in the same order.
bool meets_other_ranks(const ir::Node& node, const ir::OpTable& ops);

// Returns whether operators and attributes are equal. For some booleans, false equals an absent attribute.
bool same_attributes(const ir::Node& a, const ir::Node& b);

}  // namespace tessera
