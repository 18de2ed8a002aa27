// Lets a plugin rewrite a graph in its text form.
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

// Returns the rewritten graph, or nothing if `rewrite` wrote nothing or the same graph. Returns kInternal if the
// inputs, weights, states or outputs changed in number, in name or in type.
Result<std::optional<ir::Graph>> rewrite_graph(const ir::Graph& graph, const ir::OpTable& ops,
                                               const RewriteText& rewrite);

}  // namespace tessera::plugin
