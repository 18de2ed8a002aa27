#include "tessera/compile/passes/fold_constants.h"

#include <cmath>

#include "tessera/compile/passes/graph_facts.h"

namespace tessera {
namespace {

// Returns whether type `wide` can represent every value of type `narrow`.
bool holds(ir::DType wide, ir::DType narrow) { return wide == narrow || wide == ir::DType::kFloat32; }

// Returns the product, rounded to float32, if it is a normal float32 number or if a factor is zero. Otherwise returns
// nothing, because the product has overflowed or underflowed.
std::optional<double> product(double a, double b) {
  const float folded = static_cast<float>(a) * static_cast<float>(b);
  const bool zero = static_cast<float>(a) == 0.0F || static_cast<float>(b) == 0.0F;
  if (!zero && !std::isnormal(folded)) return std::nullopt;
  return static_cast<double>(folded);
}

// Returns whether `outer`, which reads the result of `inner`, may read the operand of `inner` instead. It may if no
// node between the two writes the operand or the result.
bool reads_through(const ir::Graph& graph, const GraphFacts& facts, ir::NodeId inner, ir::NodeId outer) {
  const ir::Node& node = graph.node(inner);
  return !facts.written_between(node.operands[0], inner, outer) &&
         !facts.written_between(node.results[0], inner, outer);
}

// Folds two nodes into `outer`: `outer` itself and the node that makes its operand. `outer` then reads the operand of
// that node. Returns false if this is not possible.
bool fold(ir::Graph& graph, const GraphFacts& facts, ir::NodeId outer_id) {
  ir::Node& outer = graph.nodes[outer_id.index()];
  if (outer.op != "scale" && outer.op != "cast" && outer.op != "reshape") return false;
  const ir::ValueId middle = outer.operands[0];
  const ir::NodeId inner_id = graph.value(middle).producer;
  if (inner_id == ir::kNoNode || graph.node(inner_id).op != outer.op) return false;
  const ir::Node& inner = graph.node(inner_id);

  if (outer.op == "cast") {
    const ir::DType from = graph.value(inner.operands[0]).type.dtype;
    if (!holds(graph.value(middle).type.dtype, from) || !reads_through(graph, facts, inner_id, outer_id)) return false;
  } else if (outer.op == "scale") {
    const std::optional<double> factor = product(inner.attribute_or("factor", 1.0), outer.attribute_or("factor", 1.0));
    const bool needed_anyway = facts.users(middle).size() > 1 || facts.is_output(middle);
    if (!factor || needed_anyway || !reads_through(graph, facts, inner_id, outer_id)) return false;
    outer.attributes = {{"factor", *factor}};
  }
  outer.operands[0] = inner.operands[0];
  return true;
}

}  // namespace

PassResult fold_constants(const ir::Graph& graph, const ir::OpTable& ops) {
  ir::Graph now = graph;
  std::optional<GraphFacts> facts(std::in_place, now, ops);
  bool changed = false;
  for (std::size_t i = 0; i < now.nodes.size(); ++i) {
    if (!fold(now, *facts, ir::NodeId{static_cast<std::int32_t>(i)})) continue;
    facts.emplace(now, ops);
    changed = true;
  }
  if (!changed) return unchanged();
  return now;
}

}  // namespace tessera
