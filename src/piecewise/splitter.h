// Cuts a graph, keeping its nodes in order. A split op gets a part of its own; everything between two split ops is one
// piece. Order, data and mutation dependencies stay as they are, because parts run in order, and a value keeps one
// slot, and so one address, on both sides of a cut.
//
//   a b attention c d attention e   ─split at attention─▶   [a b] attention [c d] attention [e]
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

// Cuts the graph at `split_ops`, names that resolve_split_ops() accepts; empty: one piece. The graph is also cut at an
// operator that cannot be captured, and a note of the result says so.
Result<StitchingGraph> split_graph(const ir::Graph& graph, const ir::OpTable& ops,
                                   std::span<const std::string> split_ops);

}  // namespace tessera
