// Computes what a pass must know about a graph before it changes the graph: which nodes use a value, which value owns
// the memory of a value, and which nodes write this memory.
//
// A view is another name for its operand's memory, so a write through one name changes the value under all names. Views
// and allocations run no kernel, so they neither read nor write.
#pragma once

#include <span>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// The facts of a verified graph. This object refers to the graph and the operator table, and becomes invalid when the
// graph changes. The constructor takes time linear in the size of the graph.
class GraphFacts {
 public:
  GraphFacts(const ir::Graph& graph, const ir::OpTable& ops);

  // Returns the value that owns the memory of `value`. A view does not own its memory. Every other value does.
  ir::ValueId memory(ir::ValueId value) const { return memory_[value.index()]; }
  // Returns the nodes that have the value itself, not another name of its memory, as an operand. The nodes are in
  // execution order, and each appears once.
  std::span<const ir::NodeId> users(ir::ValueId value) const { return users_[value.index()]; }
  // accesses() returns the nodes that run a kernel and have the value's memory as an operand under any name. writes()
  // returns only the nodes among them that write the memory. Both lists are in execution order. Neither list
  // contains the node that makes the value.
  std::span<const ir::NodeId> accesses(ir::ValueId value) const { return accesses_[memory(value).index()]; }
  std::span<const ir::NodeId> writes(ir::ValueId value) const { return writes_[memory(value).index()]; }
  // Returns whether a node between `after` and `before` writes the value's memory.
  bool written_between(ir::ValueId value, ir::NodeId after, ir::NodeId before) const;

  bool is_output(ir::ValueId value) const { return is_output_[value.index()]; }
  // Returns whether the value, or another name of its memory, is an output.
  bool memory_is_output(ir::ValueId value) const { return memory_is_output_[memory(value).index()]; }

  // Returns whether two nodes must keep their order. They must if one of them makes an operand of the other, or if one
  // of them writes memory that the other has as an operand. A view is also a node. If a node uses a result through a
  // view, the producer of the result must stay before the view, and the view before the node.
  bool depend(ir::NodeId a, ir::NodeId b) const;

  // Returns how the node's operator executes.
  ir::Execution execution(ir::NodeId node) const { return execution_[node.index()]; }
  // Returns whether the node exchanges data with other ranks (meets_other_ranks() in operators.h).
  bool exchanges(ir::NodeId node) const { return exchanges_[node.index()]; }

 private:
  bool feeds(ir::NodeId a, ir::NodeId b) const;
  bool accesses_memory(ir::NodeId node, ir::ValueId memory) const;

  const ir::Graph& graph_;
  std::vector<ir::Execution> execution_;  // one for each node
  std::vector<bool> exchanges_;           // one for each node
  std::vector<ir::ValueId> memory_;       // one for each value, like the members below
  std::vector<std::vector<ir::NodeId>> users_;
  std::vector<std::vector<ir::NodeId>> accesses_;  // indexed by memory()
  std::vector<std::vector<ir::NodeId>> writes_;    // indexed by memory()
  std::vector<bool> is_output_;
  std::vector<bool> memory_is_output_;
};

}  // namespace tessera
