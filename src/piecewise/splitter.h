// Splitting (C2): the graph's nodes in order; a split op gets a part of its own, everything between
// two of them is one piece. Order, data and mutation dependencies stay as they are, because parts
// run in order and a value keeps one slot, that is one address, on both sides of a cut.
//
//   a b attention c d attention e   ─split at attention─▶   [a b] attention [c d] attention [e]
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

// `split_ops` names operators of `ops`; one that is not there is an error naming those that are.
// Fails where an operator that cannot be captured is not among them. No split ops: one piece.
Result<StitchingGraph> split_graph(const ir::Graph& graph, const ir::OpTable& ops,
                                   std::span<const std::string> split_ops);

// Ok where all names are operators of `ops`; the error names those that are.
Status check_split_ops(const ir::OpTable& ops, std::span<const std::string> split_ops);

// Names of the operators that are cut at unless the user names others.
std::vector<std::string> default_split_ops(const ir::OpTable& ops);

}  // namespace tessera
