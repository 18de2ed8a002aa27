// Graphs that plugins rewrite as text.
#pragma once

#include <functional>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

using RewriteText =
    std::function<std::int32_t(const char* graph, const tessera_plugin_text* out, tessera_plugin_error* error)>;

// What `rewrite` makes of the graph; nothing where it wrote nothing, or the same. kInternal where inputs, weights,
// states or outputs differ, or their types.
Result<std::optional<ir::Graph>> rewrite_graph(const ir::Graph& graph, const ir::OpTable& ops,
                                               const RewriteText& rewrite);

}  // namespace tessera::plugin
