#include "tessera/compile/passes/rewrite.h"

#include <algorithm>
#include <utility>

namespace tessera {

bool may_be_output_instead(const ir::Graph& graph, const GraphFacts& facts, ir::ValueId old, ir::ValueId by) {
  if (!facts.memory_is_output(old)) return true;
  if (facts.memory(old) == facts.memory(by))  // two names of the same memory
    return !facts.is_output(old) || (graph.value(by).kind == ir::ValueKind::kResult && !facts.is_output(by));
  return graph.value(facts.memory(by)).kind == ir::ValueKind::kResult && !facts.memory_is_output(by);
}

void replace_value(ir::Graph& graph, ir::ValueId old, ir::ValueId by) {
  for (ir::Node& node : graph.nodes) std::replace(node.operands.begin(), node.operands.end(), old, by);
  if (std::find(graph.outputs.begin(), graph.outputs.end(), old) == graph.outputs.end()) return;
  std::replace(graph.outputs.begin(), graph.outputs.end(), old, by);
  std::swap(graph.value(old).name, graph.value(by).name);
}

ir::Graph without_nodes(ir::Graph graph, const std::vector<bool>& removed) {
  std::vector<ir::Node> nodes;
  std::vector<ir::NodeId> producers(graph.values.size(), ir::kNoNode);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (removed[i]) continue;
    for (const ir::ValueId result : graph.nodes[i].results)
      producers[result.index()] = ir::NodeId{static_cast<std::int32_t>(nodes.size())};
    nodes.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(nodes);

  std::vector<ir::Value> values;
  std::vector<ir::ValueId> renumbered(graph.values.size(), ir::ValueId{-1});
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    ir::Value& value = graph.values[i];
    value.producer = producers[i];
    if (value.kind == ir::ValueKind::kResult && value.producer == ir::kNoNode) continue;
    renumbered[i] = ir::ValueId{static_cast<std::int32_t>(values.size())};
    values.push_back(std::move(value));
  }
  graph.values = std::move(values);

  const auto renumber = [&](std::vector<ir::ValueId>& ids) {
    for (ir::ValueId& id : ids) id = renumbered[id.index()];
  };
  for (ir::Node& node : graph.nodes) {
    renumber(node.operands);
    renumber(node.results);
  }
  renumber(graph.inputs);
  renumber(graph.weights);
  renumber(graph.states);
  renumber(graph.outputs);
  return graph;
}

}  // namespace tessera
