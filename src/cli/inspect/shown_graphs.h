// Writes graphs for `explain --graph`.
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/engine/plan/graph_export.h"

namespace tessera::cli {

// Returns the graphs' text. Text and DOT show the graphs one after another. JSON is one object for a single graph, and
// an array for several graphs. An SVG file can show only one graph. For several graphs, the function returns an error
// that names them. Precondition: `graphs` is not empty.
Result<std::string> shown_graphs(std::span<const NamedGraph* const> graphs, ExplainFormat format);

}  // namespace tessera::cli
