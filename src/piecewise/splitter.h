// Splitting: the graph's nodes in order. A split op gets a part of its own; everything between two of them is one
// piece. Order, data and mutation dependencies stay as they are, because parts run in order and a value keeps one slot,
// that is one address, on both sides of a cut.
//
//   a b attention c d attention e   ─split at attention─▶   [a b] attention [c d] attention [e]
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

// `split_ops`: as resolve_split_ops() takes them; empty: one piece. An operator that cannot be captured is cut at too,
// and a note of the result says so.
Result<StitchingGraph> split_graph(const ir::Graph& graph, const ir::OpTable& ops,
                                   std::span<const std::string> split_ops);

}  // namespace tessera
