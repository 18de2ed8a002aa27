// Properties of operators that passes need but that the operators' declarations do not contain.
#pragma once

#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Returns whether the node's two operands have the same type and may be swapped without changing a bit of the result.
bool commutes(const ir::Graph& graph, const ir::Node& node);

// Returns whether the node exchanges data with the same node on other ranks. Passes do not change these nodes, because
// all ranks must run their exchanges in the same order although their graphs may differ.
bool meets_other_ranks(const ir::Node& node, const ir::OpTable& ops);

// Returns whether the two nodes have equal operators and equal attributes. For some boolean attributes, false is equal
// to an absent attribute.
bool same_attributes(const ir::Node& a, const ir::Node& b);

}  // namespace tessera
