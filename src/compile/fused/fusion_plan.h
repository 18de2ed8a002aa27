// Which operators of a piece are computed together. A pure function of the graph: every device gets the same groups.
//
// The piece is expanded to native forms first, so that operators fused by hand come apart; an operator stays whole
// where a part of its form could not be fused again. Then the nodes are taken in order: a node joins a group that makes
// or reads what it reads, where nothing in between stands in the way; otherwise it begins a group, or stays an operator
// with a kernel of its own. A group of one operator is that operator.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/fused/lower_group.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

struct FusionStep {
  ir::NodeId node = ir::kNoNode;  // an operator with its registered kernel; kNoNode: a group
  LoweredGroup group{};
};

struct FusionPlan {
  ir::Graph graph;                // the expanded piece; all values of the piece are in it, under their names
  std::vector<FusionStep> steps;  // in execution order; views and allocations are none
};

Result<FusionPlan> plan_fusion(const ir::Graph& piece, const ir::OpTable& ops);

// For tests and to be read: each step in a line, below a group its row kernel.
std::string to_text(const FusionPlan& plan);

}  // namespace tessera
