// What a pass must know of a graph before it changes it: which nodes use a value, whose memory the value has, and which
// nodes write that memory.
//
// A view is another name for its operand's memory, so that a write through one is seen through all. Views and
// allocations run nothing: they neither read nor write.
#pragma once

#include <span>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// Borrows graph and table. The facts hold until the graph changes; make new ones then. The graph is verified. Cost:
// linear in the graph.
class GraphFacts {
 public:
  GraphFacts(const ir::Graph& graph, const ir::OpTable& ops);

  // The value whose memory it is: itself, but for views.
  ir::ValueId memory(ir::ValueId value) const { return memory_[value.index()]; }
  // Nodes that have the value itself as an operand, in order, each once.
  std::span<const ir::NodeId> users(ir::ValueId value) const { return users_[value.index()]; }
  // Kernels that have its memory as an operand, under any name; those that write it. In order, without its producer.
  std::span<const ir::NodeId> accesses(ir::ValueId value) const { return accesses_[memory(value).index()]; }
  std::span<const ir::NodeId> writes(ir::ValueId value) const { return writes_[memory(value).index()]; }
  // A node in (after, before) writes the value's memory.
  bool written_between(ir::ValueId value, ir::NodeId after, ir::NodeId before) const;

  bool is_output(ir::ValueId value) const { return is_output_[value.index()]; }
  // It, or another name of its memory, is an output.
  bool memory_is_output(ir::ValueId value) const { return memory_is_output_[memory(value).index()]; }

  // One of the two makes what the other has as an operand, or writes memory that the other has as an operand: their
  // order must stay. (What is made and used through a view is ordered by the view, a node of its own.)
  bool depend(ir::NodeId a, ir::NodeId b) const;

  // Of the node's operator.
  ir::Execution execution(ir::NodeId node) const { return execution_[node.index()]; }

 private:
  bool feeds(ir::NodeId a, ir::NodeId b) const;
  bool accesses_memory(ir::NodeId node, ir::ValueId memory) const;

  const ir::Graph& graph_;
  std::vector<ir::Execution> execution_;  // [nodes]
  std::vector<ir::ValueId> memory_;       // [values], as all that follow
  std::vector<std::vector<ir::NodeId>> users_;
  std::vector<std::vector<ir::NodeId>> accesses_;  // at memory()
  std::vector<std::vector<ir::NodeId>> writes_;    // at memory()
  std::vector<bool> is_output_;
  std::vector<bool> memory_is_output_;
};

}  // namespace tessera
