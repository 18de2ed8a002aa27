#include "tessera/plugin/pass.h"

#include <fmt/format.h>

#include <string>

#include "tessera/ir/text.h"
#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_table.h"

namespace tessera::plugin {
namespace {

PassResult run(const tessera_plugin_pass& table, const ir::Graph& graph, const ir::OpTable& ops) {
  const std::string text = ir::to_text(graph);
  TextSink out;
  TRY(call([&](tessera_plugin_error* error) { return table.run(table.self, text.c_str(), out.get(), error); }));
  const std::string changed = out.take();
  if (changed.empty() || changed == text) return unchanged();
  ir::Graph result = TRY(ir::parse_graph(changed, &ops).with_context("the text it wrote"));
  const auto same = [&](const std::vector<ir::ValueId>& before, const std::vector<ir::ValueId>& after) {
    return std::equal(before.begin(), before.end(), after.begin(), after.end(), [&](ir::ValueId a, ir::ValueId b) {
      return graph.value(a).name == result.value(b).name && graph.value(a).type == result.value(b).type;
    });
  };
  if (!same(graph.inputs, result.inputs) || !same(graph.weights, result.weights) ||
      !same(graph.states, result.states) || !same(graph.outputs, result.outputs))
    return internal_error("inputs, weights, states and outputs must stay as they are, with names and types");
  return result;
}

}  // namespace

Result<Pass> make_plugin_pass(const tessera_plugin_pass* given) {
  const tessera_plugin_pass table = TRY(copy_table(given, "pass"));
  TRY(check_word(table.name, "pass"));
  TRY(check_set(table.run, "pass", "run"));
  return Pass{.name = table.name,
              .summary = table.summary == nullptr ? "a plugin's" : table.summary,
              .version = table.version,
              .run = [table](const ir::Graph& graph, const ir::OpTable& ops) { return run(table, graph, ops); }};
}

}  // namespace tessera::plugin
