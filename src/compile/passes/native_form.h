// Finds an operator's native form in a graph: nodes that compute what the operator would, and that it may replace.
//
// A match is looked for in two steps. First by structure: operators and wiring of the form's example, from one node of
// the graph on. That says which values the operator's operands are. Then exactly: the attributes are gathered from the
// nodes found, the operator is decomposed for the real types and attributes, and the two must agree in every operator,
// attribute, type and wire. Two epsilons that differ, heads of another size or a split at another place fail there.
//
// What has been found may be replaced where
//   - no value inside is used by anybody else or is an output, but for views that nothing writes through: two norms
//     of one value may share the view of its heads, which stays for the other,
//   - there is a place among the nodes found to which all of them can move: between them and it nothing writes what
//     they read, and nothing reads or writes what they write.
#pragma once

#include <optional>

#include "tessera/compile/passes/fused_forms.h"
#include "tessera/compile/passes/graph_facts.h"
#include "tessera/ir/graph.h"

namespace tessera {

// A native form as a graph of its own.
struct NativeForm {
  ir::Node node;                      // the operator, with the form's operands and attributes
  ir::Graph graph;                    // the native form
  std::vector<ir::ValueId> operands;  // of the operator, in `graph`
  std::vector<ir::ValueId> results;

  // Fails where the operator does not accept the types or attributes.
  static Result<NativeForm> create(const ir::OpDecl& decl, Decompose decompose, std::span<const ir::Type> operands,
                                   ir::Attributes attributes, const ir::OpTable& ops);
  // Of the form's example. Fails with kInternal where an operand is not used, or a node takes nothing from the nodes
  // before it: the search goes from node to node along their results.
  static Result<NativeForm> create(const FusedForm& form, const ir::OpTable& ops);
};

// Nodes of a graph that make up a native form, and what replaces them.
struct FormMatch {
  std::vector<ir::NodeId> nodes;  // in the native form's order, without the views that others use too
  ir::NodeId place;               // one of them, where `fused` will stand
  ir::Node fused;
};

// The match whose first node is `first`, where there is one. `example` is the form's.
std::optional<FormMatch> find_native_form(const FusedForm& form, const NativeForm& example, const ir::Graph& graph,
                                          const GraphFacts& facts, const ir::OpTable& ops, ir::NodeId first);

}  // namespace tessera
