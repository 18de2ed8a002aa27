// Decides which operators of a piece are computed together. A pure function of the graph: every device gets the same
// groups.
//
// First the piece is expanded to native forms, so that hand-fused operators come apart; an operator stays whole if a
// part of its form could not be fused again. Then the nodes are taken in order. A node joins a group that makes or
// reads one of its operands, if the reads and writes of the nodes between them allow it. Otherwise it begins a group,
// or stays an operator with a kernel of its own. A group of one operator becomes that operator.
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

// Formats the plan for tests and readers: each step on a line, followed by its row kernel if it is a group.
std::string to_text(const FusionPlan& plan);

}  // namespace tessera
