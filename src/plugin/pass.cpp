#include "tessera/plugin/pass.h"

#include "tessera/plugin/c_table.h"
#include "tessera/plugin/graph_text.h"

namespace tessera::plugin {

Result<Pass> make_plugin_pass(const tessera_plugin_pass* given) {
  const tessera_plugin_pass table = TRY(copy_table(given, "pass"));
  TRY(check_word(table.name, "pass"));
  TRY(check_set(table.run, "pass", "run"));
  return Pass{.name = table.name,
              .summary = table.summary == nullptr ? "a plugin's" : table.summary,
              .version = table.version,
              .run = [table](const ir::Graph& graph, const ir::OpTable& ops) {
                return rewrite_graph(
                    graph, ops, [&](const char* text, const tessera_plugin_text* out, tessera_plugin_error* error) {
                      return table.run(table.self, text, out, error);
                    });
              }};
}

}  // namespace tessera::plugin
