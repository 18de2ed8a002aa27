#include "tessera/plugin/graph_text.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/ir/text.h"
#include "tessera/plugin/c_call.h"

namespace tessera::plugin {

Result<std::optional<ir::Graph>> rewrite_graph(const ir::Graph& graph, const ir::OpTable& ops,
                                               const RewriteText& rewrite) {
  const std::string text = ir::to_text(graph);
  TextSink out;
  TRY(call([&](tessera_plugin_error* error) { return rewrite(text.c_str(), out.get(), error); }));
  const std::string changed = out.take();
  if (changed.empty() || changed == text) return std::optional<ir::Graph>();
  ir::Graph result = TRY(ir::parse_graph(changed, &ops).with_context("the text it wrote"));
  const auto same = [&](const std::vector<ir::ValueId>& before, const std::vector<ir::ValueId>& after) {
    return std::equal(before.begin(), before.end(), after.begin(), after.end(), [&](ir::ValueId a, ir::ValueId b) {
      return graph.value(a).name == result.value(b).name && graph.value(a).type == result.value(b).type;
    });
  };
  if (!same(graph.inputs, result.inputs) || !same(graph.weights, result.weights) ||
      !same(graph.states, result.states) || !same(graph.outputs, result.outputs))
    return internal_error("inputs, weights, states and outputs must stay as they are, with names and types");
  return std::optional(std::move(result));
}

}  // namespace tessera::plugin
