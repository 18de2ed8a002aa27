// Decides which operators of a piece are fused into one kernel. The decision is a pure function of the graph, so every
// device gets the same groups.
//
// First, hand-fused operators are replaced by their native forms. An operator stays whole if some operator of its
// native form could not be part of a group. Then the nodes are taken in order. A node joins a group that makes or reads
// one of the node's operands, unless reads and writes of the nodes in between forbid this. Otherwise the node begins a
// group of its own, or runs alone with its registered kernel. If a group has only one operator in the end, that
// operator runs with its registered kernel.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/fused/lower_group.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

struct FusionStep {
  ir::NodeId node = ir::kNoNode;  // an operator with its registered kernel; kNoNode: the step is a group
  LoweredGroup group{};
};

struct FusionPlan {
  ir::Graph graph;                // the expanded piece; it has all values of the piece, under their names
  std::vector<FusionStep> steps;  // in execution order; views and allocations have no step
};

Result<FusionPlan> plan_fusion(const ir::Graph& piece, const ir::OpTable& ops);

// Formats the plan for tests and readers: one line for each step, followed by its row kernel if it is a group.
std::string to_text(const FusionPlan& plan);

}  // namespace tessera
