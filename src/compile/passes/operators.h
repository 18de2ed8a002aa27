// What passes know of operators beyond their declarations.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera {

// Its two operands may change places, where they have one type, without changing a bit of the result.
bool commutes(const ir::Graph& graph, const ir::Node& node);

// It waits for the other ranks' same node. Ranks' graphs may differ, so that a pass leaves it alone: all ranks must
// keep meeting in the same order.
bool meets_other_ranks(const ir::Node& node);

// Equal operators and attributes. Of some booleans, false equals being left out.
bool same_attributes(const ir::Node& a, const ir::Node& b);

}  // namespace tessera
