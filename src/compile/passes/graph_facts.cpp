#include "tessera/compile/passes/graph_facts.h"

#include <algorithm>

#include "tessera/compile/passes/operators.h"

namespace tessera {
namespace {

void add_once(std::vector<ir::NodeId>& nodes, ir::NodeId node) {
  if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
}

bool contains(const std::vector<ir::ValueId>& values, ir::ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

GraphFacts::GraphFacts(const ir::Graph& graph, const ir::OpTable& ops)
    : graph_(graph),
      users_(graph.values.size()),
      accesses_(graph.values.size()),
      writes_(graph.values.size()),
      is_output_(graph.values.size(), false),
      memory_is_output_(graph.values.size(), false) {
  for (std::size_t i = 0; i < graph.values.size(); ++i) memory_.emplace_back(static_cast<std::int32_t>(i));
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    const ir::NodeId id{static_cast<std::int32_t>(i)};
    execution_.push_back(ops.find(node.op)->execution);
    exchanges_.push_back(meets_other_ranks(node, ops));
    if (execution_.back() == ir::Execution::kView) memory_[node.results[0].index()] = memory_[node.operands[0].index()];
    for (std::size_t k = 0; k < node.operands.size(); ++k) {
      const ir::ValueId operand = node.operands[k];
      add_once(users_[operand.index()], id);
      if (execution_.back() != ir::Execution::kKernel) continue;
      add_once(accesses_[memory(operand).index()], id);
      if (node.mutates[k]) add_once(writes_[memory(operand).index()], id);
    }
  }
  for (const ir::ValueId output : graph.outputs) {
    is_output_[output.index()] = true;
    memory_is_output_[memory(output).index()] = true;
  }
}

bool GraphFacts::written_between(ir::ValueId value, ir::NodeId after, ir::NodeId before) const {
  return std::any_of(writes(value).begin(), writes(value).end(),
                     [&](ir::NodeId node) { return node > after && node < before; });
}

bool GraphFacts::accesses_memory(ir::NodeId node, ir::ValueId memory_of) const {
  const std::vector<ir::ValueId>& operands = graph_.node(node).operands;
  return execution(node) == ir::Execution::kKernel &&
         std::any_of(operands.begin(), operands.end(),
                     [&](ir::ValueId operand) { return memory(operand) == memory_of; });
}

bool GraphFacts::feeds(ir::NodeId a, ir::NodeId b) const {
  const ir::Node& from = graph_.node(a);
  const ir::Node& to = graph_.node(b);
  for (const ir::ValueId result : from.results)
    if (contains(to.operands, result)) return true;
  for (std::size_t k = 0; k < from.operands.size(); ++k)
    if (from.mutates[k] && accesses_memory(b, memory(from.operands[k]))) return true;
  return false;
}

bool GraphFacts::depend(ir::NodeId a, ir::NodeId b) const { return feeds(a, b) || feeds(b, a); }

}  // namespace tessera
