#include "tessera/compile/passes/merge_common_subexpressions.h"

#include <algorithm>

#include "tessera/compile/passes/operators.h"
#include "tessera/compile/passes/rewrite.h"

namespace tessera {
namespace {

bool same_operands(const ir::Graph& graph, const ir::Node& a, const ir::Node& b) {
  if (a.operands == b.operands) return true;
  return a.operands.size() == 2 && b.operands.size() == 2 && a.operands[0] == b.operands[1] &&
         a.operands[1] == b.operands[0] && commutes(graph, a);
}

// Returns whether a node's results depend only on the contents of its operands and on its attributes.
bool is_pure(const GraphFacts& facts, const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  return !node.operands.empty() && facts.execution(id) != ir::Execution::kAllocate && !facts.exchanges(id) &&
         std::find(node.mutates.begin(), node.mutates.end(), true) == node.mutates.end();
}

bool may_merge(const ir::Graph& graph, const GraphFacts& facts, ir::NodeId first, ir::NodeId second) {
  const ir::Node& a = graph.node(first);
  const ir::Node& b = graph.node(second);
  if (!same_attributes(a, b) || !same_operands(graph, a, b)) return false;
  for (std::size_t i = 0; i < a.results.size(); ++i)
    if (!may_be_output_instead(graph, facts, b.results[i], a.results[i])) return false;
  if (facts.execution(first) == ir::Execution::kView)
    return graph.value(a.results[0]).type == graph.value(b.results[0]).type;
  const auto written = [&](ir::ValueId result) { return !facts.writes(result).empty(); };
  return std::none_of(a.operands.begin(), a.operands.end(),
                      [&](ir::ValueId operand) { return facts.written_between(operand, first, second); }) &&
         std::none_of(a.results.begin(), a.results.end(), written) &&
         std::none_of(b.results.begin(), b.results.end(), written);
}

// Returns the first node that computes the same results as `second`, or kNoNode if there is none.
ir::NodeId find_twin(const ir::Graph& graph, const GraphFacts& facts, const std::vector<bool>& removed,
                     ir::NodeId second) {
  if (!is_pure(facts, graph, second)) return ir::kNoNode;
  for (const ir::NodeId first : facts.users(graph.node(second).operands[0])) {
    if (first >= second) break;
    if (!removed[first.index()] && may_merge(graph, facts, first, second)) return first;
  }
  return ir::kNoNode;
}

}  // namespace

PassResult merge_common_subexpressions(const ir::Graph& graph, const ir::OpTable& ops) {
  ir::Graph now = graph;
  std::optional<GraphFacts> facts(std::in_place, now, ops);
  std::vector<bool> removed(graph.nodes.size(), false);
  bool changed = false;
  for (std::size_t i = 0; i < now.nodes.size(); ++i) {
    const ir::NodeId second{static_cast<std::int32_t>(i)};
    const ir::NodeId first = find_twin(now, *facts, removed, second);
    if (first == ir::kNoNode) continue;
    for (std::size_t k = 0; k < now.nodes[i].results.size(); ++k)
      replace_value(now, now.nodes[i].results[k], now.node(first).results[k]);
    removed[i] = changed = true;
    facts.emplace(now, ops);
  }
  if (!changed) return unchanged();
  return without_nodes(std::move(now), removed);
}

}  // namespace tessera
