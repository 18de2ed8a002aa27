// Finds an operator's native form in a graph: nodes that compute what the operator would compute, and that it may
// replace.
//
// The search has two steps. The first one compares structure: operators and wiring of the form's example, from one node
// of the graph on. It tells which values are the operator's operands. The second one is exact: the attributes are
// gathered from the nodes found, the operator is decomposed for the real types and attributes, and the two must agree
// in every operator, attribute, type and wire. This step rejects two epsilons that differ, heads of another size, or a
// split at another place.
//
// A match may be replaced if
//   - no value inside is an output or is used outside of the match, except views that nothing writes through: two norms
//     of one value may share the view of its heads, which then stays for the other,
//   - one of the nodes found is a place to which all of them can move: between them and that place nothing writes what
//     they read, and nothing reads or writes what they write.
#pragma once

#include <optional>

#include "tessera/compile/passes/fused_forms.h"
#include "tessera/compile/passes/graph_facts.h"
#include "tessera/ir/graph.h"

namespace tessera {

// A native form as a graph of its own.
struct NativeForm {
  ir::Node node;                      // the operator's node, with the form's operands and attributes
  ir::Graph graph;                    // the native form
  std::vector<ir::ValueId> operands;  // operands of the operator in `graph`
  std::vector<ir::ValueId> results;

  // Fails if the operator does not accept the types or attributes.
  static Result<NativeForm> create(const ir::OpDecl& decl, const Decompose& decompose,
                                   std::span<const ir::Type> operands, ir::Attributes attributes,
                                   const ir::OpTable& ops);
  // Makes the native form of the form's example. kInternal if an operand is not used, or a node uses no result of the
  // nodes before it: the search goes from node to node along their results.
  static Result<NativeForm> create(const FusedForm& form, const ir::OpTable& ops);
};

// Nodes of a graph that make up a native form, and their replacement.
struct FormMatch {
  std::vector<ir::NodeId> nodes;  // in the native form's order, without views that others use too
  ir::NodeId place;               // the one of `nodes` that `fused` replaces
  ir::Node fused;
};

// Returns the match whose first node is `first`, if there is one. `example` is the form's example.
std::optional<FormMatch> find_native_form(const FusedForm& form, const NativeForm& example, const ir::Graph& graph,
                                          const GraphFacts& facts, const ir::OpTable& ops, ir::NodeId first);

}  // namespace tessera
