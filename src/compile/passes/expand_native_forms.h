// expand_native_forms replaces operators with their native forms, which compute the same results with simpler
// operators. fuse_native_forms does the reverse.
//
// Before                                                            After
//   %normed: f32[T, 8], %sum: f32[T, 8] = add_rms_norm(%x, %r, %w)    %sum: f32[T, 8] = add(%x, %r)
//   return %normed                                                    %normed: f32[T, 8] = rms_norm(%sum, %w)
//                                                                     return %normed
//
// The callers are tests, and compilers that choose themselves which operators to fuse.
#pragma once

#include <functional>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

using ExpandsNode = std::function<bool(const ir::Graph& graph, const ir::Node& node)>;

// If an operator declares a native form, this function replaces the operator by it. The function repeats this until no
// such operator is left, and returns the new graph. If `expands` is given, only operators for which it returns true are
// replaced. Existing values keep their names. New values are named "<the operator's first result>.<operator>".
// Precondition: the graph is verified.
Result<ir::Graph> expand_native_forms(const ir::Graph& graph, const ir::OpTable& ops, const ExpandsNode& expands = {});

}  // namespace tessera
