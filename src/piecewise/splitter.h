// Cuts a graph at its split ops, which are single operators that run between captured pieces, such as attention. A
// split op becomes a separate part, and all nodes between two split ops form one piece. Parts run in the order of the
// nodes in the source graph. A value has the same slot (its number in the whole forward), and therefore the same
// address, on both sides of a cut. Order and slots together preserve all dependencies between nodes.
//
//   a b attention c d attention e   ─split at attention─▶   [a b] attention [c d] attention [e]
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

// Cuts the graph at `split_ops`, which are names that resolve_split_ops() accepts. Also cuts the graph at every other
// operator that cannot be captured, and adds a note about it to the result. A graph without cuts becomes one piece.
Result<StitchingGraph> split_graph(const ir::Graph& graph, const ir::OpTable& ops,
                                   std::span<const std::string> split_ops);

}  // namespace tessera
