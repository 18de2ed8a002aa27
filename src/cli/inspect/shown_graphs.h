// Graphs as `explain --graph` prints them.
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/engine/report/graph_export.h"

namespace tessera::cli {

// Text and DOT: one after another. JSON: an object, of several an array. An SVG file shows one graph alone: several are
// refused with their names. Precondition: not empty.
Result<std::string> shown_graphs(std::span<const NamedGraph* const> graphs, ExplainFormat format);

}  // namespace tessera::cli
