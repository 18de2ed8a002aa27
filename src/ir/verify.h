// Checks the rules of a graph after it is built, after it is parsed, and after each pass.
#pragma once

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera::ir {

// Returns an error for the first rule that `graph` breaks. The message names graph, node, operator and value. The code
// is kInternal, because only a bug in a model or a pass breaks a rule. Errors of OpTable::get() and check_node() keep
// their own codes.
//
//   Values      names are unique and not empty; dimensions can be evaluated and are not negative; inputs, weights and
//               states are listed once, in the list of their kind; a result has one producer, which lists it.
//   Nodes       the operator is declared and check_node() accepts the node; result types are the inferred ones;
//               operands are defined before they are used.
//   Memory      a view has one result: operand 0 in another shape with as many elements. Inputs and weights are never
//               written, neither directly nor through a view. A node that writes an operand has no other operand in the
//               same memory. Memory of an allocating operator is written before a kernel reads it and before it is an
//               output.
//   Splitting   an operator with split_by_default runs a kernel.
//   Outputs     outputs exist and are neither weights nor views of weights.
//   Groups      cache groups have unique names, share no layers, and have a window if and only if their
//               kind is kWindow; only the first dimension of a state may be a group's number of pages; the integer
//               attribute `group` of a node with a state operand is the index of that state's group.
//
// The time is linear in the size of the graph.
Status verify(const Graph& graph, const OpTable& ops);

}  // namespace tessera::ir
