#include "tessera/compile/passes/remove_copies.h"

#include "tessera/compile/passes/rewrite.h"

namespace tessera {
namespace {

// Returns whether the node's only result equals its operand, bit for bit.
bool is_identity(const ir::Graph& graph, const ir::Node& node) {
  if (node.operands.size() != 1 || node.results.size() != 1) return false;
  if (graph.value(node.operands[0]).type != graph.value(node.results[0]).type) return false;
  if (node.op == "scale") return static_cast<float>(node.attribute_or("factor", 0.0)) == 1.0F;
  return node.op == "copy" || node.op == "cast" || node.op == "reshape" || node.op == "split";
}

// Returns whether all nodes after `at` would still read the same data if `original` replaced `copy`.
bool indistinguishable(const ir::Graph& graph, const GraphFacts& facts, ir::NodeId at, ir::ValueId original,
                       ir::ValueId copy) {
  if (facts.memory(original) == facts.memory(copy)) return true;
  const auto later = [at](ir::NodeId node) { return node > at; };
  if (!facts.writes(copy).empty()) {
    // After the replacement, later writes to the copy would go to the original. The original must therefore be a node's
    // result and no output of the graph, and no later node may read or write it.
    return graph.value(facts.memory(original)).kind == ir::ValueKind::kResult && !facts.memory_is_output(original) &&
           (facts.accesses(original).empty() || !later(facts.accesses(original).back()));
  }
  // A later write to the original does no harm if it comes after the last use of the copy.
  for (const ir::NodeId write : facts.writes(original)) {
    if (!later(write)) continue;
    if (facts.memory_is_output(copy)) return false;
    if (!facts.accesses(copy).empty() && facts.accesses(copy).back() >= write) return false;
  }
  return true;
}

}  // namespace

PassResult remove_copies(const ir::Graph& graph, const ir::OpTable& ops) {
  std::optional<ir::Graph> changed;
  std::vector<bool> removed(graph.nodes.size(), false);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Graph& now = changed ? *changed : graph;
    if (!is_identity(now, now.nodes[i])) continue;
    const ir::ValueId original = now.nodes[i].operands[0];
    const ir::ValueId copy = now.nodes[i].results[0];
    const GraphFacts facts(now, ops);
    const ir::NodeId at{static_cast<std::int32_t>(i)};
    if (!indistinguishable(now, facts, at, original, copy) || !may_be_output_instead(now, facts, copy, original))
      continue;
    if (!changed) changed = graph;
    replace_value(*changed, copy, original);
    removed[i] = true;
  }
  if (!changed) return unchanged();
  return without_nodes(*std::move(changed), removed);
}

}  // namespace tessera
