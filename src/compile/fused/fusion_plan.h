// Decides which operators of a piece (a part of the model's graph) are fused into one kernel. The decision is a pure
// function of the graph, so every device gets the same groups.
//
// First, hand-fused operators are replaced by their native forms (equivalent graphs of simpler operators). But if some
// operator of the native form could not be part of a group, the hand-fused operator stays. After all replacements, the
// nodes are taken in order. A node joins a group that makes or reads one of the node's operands, unless reads and
// writes of the nodes in between forbid this. Otherwise the node begins a new group, or runs alone with its registered
// kernel. If a group has only one operator in the end, that operator runs with its registered kernel.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/fused/lower_group.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

struct FusionStep {
  // The operator to run with its registered kernel, or kNoNode if the step is a group.
  ir::NodeId node = ir::kNoNode;
  LoweredGroup group{};
};

struct FusionPlan {
  ir::Graph graph;                // the expanded piece, with all values of the piece under their names
  std::vector<FusionStep> steps;  // in execution order, without views and allocations
};

Result<FusionPlan> plan_fusion(const ir::Graph& piece, const ir::OpTable& ops);

// Formats the plan for tests and readers. Each step has one line. If the step is a group, its row kernel follows.
std::string to_text(const FusionPlan& plan);

}  // namespace tessera
