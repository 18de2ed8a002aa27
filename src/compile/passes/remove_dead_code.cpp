#include "tessera/compile/passes/remove_dead_code.h"

#include <algorithm>

#include "tessera/compile/passes/operators.h"
#include "tessera/compile/passes/rewrite.h"

namespace tessera {

PassResult remove_dead_code(const ir::Graph& graph, const ir::OpTable& ops) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const ir::ValueId output : graph.outputs) needed[output.index()] = true;
  std::vector<bool> dead(graph.nodes.size(), false);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const ir::Node& node = graph.nodes[i];
    const bool writes = std::find(node.mutates.begin(), node.mutates.end(), true) != node.mutates.end();
    dead[i] = !writes && !meets_other_ranks(node, ops) &&
              std::none_of(node.results.begin(), node.results.end(),
                           [&](ir::ValueId result) -> bool { return needed[result.index()]; });
    if (dead[i]) continue;
    for (const ir::ValueId operand : node.operands) needed[operand.index()] = true;
  }
  if (std::find(dead.begin(), dead.end(), true) == dead.end()) return unchanged();
  return without_nodes(graph, dead);
}

}  // namespace tessera
