// Functions with which passes change a graph.
#pragma once

#include <vector>

#include "tessera/compile/passes/graph_facts.h"
#include "tessera/ir/graph.h"

namespace tessera {

// Returns whether the rules for outputs allow `by` to replace `old`. Each output must have separate memory, which it
// shares with no other output and with no input, weight or state. The caller checks that the contents are equal.
bool may_be_output_instead(const ir::Graph& graph, const GraphFacts& facts, ir::ValueId old, ir::ValueId by);

// Replaces `old` with `by` in every operand and output. If `old` is an output, `by` takes over its name, because
// outputs are found by name. Precondition: may_be_output_instead().
void replace_value(ir::Graph& graph, ir::ValueId old, ir::ValueId by);

// Returns `graph` without the nodes whose entry in `removed` is true, and without the results of these nodes. The
// remaining nodes and values are renumbered, in the same order. Precondition: no remaining node uses a removed value.
ir::Graph without_nodes(ir::Graph graph, const std::vector<bool>& removed);

}  // namespace tessera
