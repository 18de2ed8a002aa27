// The few ways in which passes change a graph.
#pragma once

#include <vector>

#include "tessera/compile/passes/graph_facts.h"
#include "tessera/ir/graph.h"

namespace tessera {

// `by` may stand wherever `old` does, as far as outputs are concerned: an output stays a value of its own memory, apart
// from other outputs and from what comes from outside. Contents are the caller's to compare.
bool may_be_output_instead(const ir::Graph& graph, const GraphFacts& facts, ir::ValueId old, ir::ValueId by);

// Every operand and output `old` becomes `by`, which takes over the name where `old` is an output: outputs are found by
// their names. Precondition: may_be_output_instead().
void replace_value(ir::Graph& graph, ir::ValueId old, ir::ValueId by);

// `graph` without the nodes marked in `removed` [nodes] and the results that no node is left to make; what is left is
// numbered anew, in the same order. Nothing that stays may use what goes.
ir::Graph without_nodes(ir::Graph graph, const std::vector<bool>& removed);

}  // namespace tessera
