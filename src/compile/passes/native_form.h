// Finds an operator's native form in a graph. The native form consists of simpler nodes that together compute what the
// operator would compute. If the form is found, the operator may replace these nodes.
//
// The search has two steps. The first step starts at one node of the graph and compares the structure (operators and
// connections) with the structure of an example of the native form (FusedForm). The operator's operands are known after
// this step. The second step is exact. It takes the attributes from the found nodes and decomposes the operator for the
// real types and attributes. The result must agree with the found nodes in every operator, attribute, type and
// connection. For example, this step rejects a match with two different epsilons, another head size, or a split at
// another place.
//
// A match may be replaced if both of these conditions are true:
//   - no inner value is an output or is used outside of the match. Views that nothing writes through are exempt. For
//     example, two norms may share a view of a value's heads. If one norm is replaced, the view stays for the other
//     norm.
//   - all nodes of the match can move to the place of one of them. A node may move past a node outside of the match
//     only if that other node does not write what the moved node reads, and neither reads nor writes what the moved
//     node writes.
#pragma once

#include <optional>

#include "tessera/compile/passes/fused_forms.h"
#include "tessera/compile/passes/graph_facts.h"
#include "tessera/ir/graph.h"

namespace tessera {

// A native form as a separate graph.
struct NativeForm {
  ir::Node node;                      // the operator's node, with the form's operands and attributes
  ir::Graph graph;                    // the native form
  std::vector<ir::ValueId> operands;  // operands of the operator in `graph`
  std::vector<ir::ValueId> results;

  // Returns an error if the operator does not accept the types or attributes.
  static Result<NativeForm> create(const ir::OpDecl& decl, const Decompose& decompose,
                                   std::span<const ir::Type> operands, ir::Attributes attributes,
                                   const ir::OpTable& ops);
  // Makes the native form for the example types and attributes of `form`. Returns kInternal if an operand is unused, or
  // if a node uses no result of earlier nodes, because the search could not reach such an operand or node.
  static Result<NativeForm> create(const FusedForm& form, const ir::OpTable& ops);
};

// Nodes of a graph that make up a native form, and their replacement.
struct FormMatch {
  std::vector<ir::NodeId> nodes;  // in the native form's order, without views that other nodes also use
  ir::NodeId place;               // one of `nodes`, whose position `fused` takes
  ir::Node fused;
};

// Returns the match whose first node is `first`, if there is one. `example` is NativeForm::create(form, ops).
std::optional<FormMatch> find_native_form(const FusedForm& form, const NativeForm& example, const ir::Graph& graph,
                                          const GraphFacts& facts, const ir::OpTable& ops, ir::NodeId first);

}  // namespace tessera
