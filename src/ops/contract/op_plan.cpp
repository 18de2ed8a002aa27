#include "tessera/ops/contract/op_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/ops/contract/op.h"

namespace tessera {
namespace {

std::int64_t group_of(const ir::Node& node) { return node.attribute_or("group", std::int64_t{0}); }

}  // namespace

Result<const OpPlan*> find_plan(const BindArgs& args) {
  const std::int64_t group = group_of(args.node);
  for (const PlanOfOp& entry : args.context.plans)
    if (entry.op == args.node.op && entry.group == group) return entry.plan;
  return failed_precondition(
      fmt::format("the forward context has no plan of operator {} for cache group {}", args.node.op, group));
}

Result<std::vector<PlannedOp>> find_planned_ops(std::span<const ir::Graph* const> graphs, const KernelTable& kernels) {
  std::vector<PlannedOp> planned;
  for (const ir::Graph* graph : graphs) {
    for (const ir::Node& node : graph->nodes) {
      const KernelDef* kernel = kernels.find(node.op);
      if (kernel == nullptr || kernel->planner == nullptr) continue;
      const std::int64_t group = group_of(node);
      auto entry = std::find_if(planned.begin(), planned.end(),
                                [&](const PlannedOp& p) { return p.op == node.op && p.group == group; });
      if (entry == planned.end())
        entry = planned.insert(entry, PlannedOp{.op = node.op, .group = group, .kernel = kernel, .nodes = {}});
      PlannedNode& added = entry->nodes.emplace_back(PlannedNode{.node = &node, .operands = {}});
      for (const ir::ValueId operand : node.operands) added.operands.push_back(graph->value(operand).type);
    }
  }
  return planned;
}

}  // namespace tessera
