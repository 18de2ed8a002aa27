// Operators by their native forms: what fuse_native_forms takes back.
//
// Before                                                            After
//   %normed: f32[T, 8], %sum: f32[T, 8] = add_rms_norm(%x, %r, %w)    %sum: f32[T, 8] = add(%x, %r)
//   return %normed                                                    %normed: f32[T, 8] = rms_norm(%sum, %w)
//                                                                     return %normed
//
// For compilers that choose themselves what to fuse, and for tests.
#pragma once

#include <functional>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

using ExpandsNode = std::function<bool(const ir::Graph& graph, const ir::Node& node)>;

// `graph` with every operator that declares a native form replaced by it, again and again until none is left; where
// `expands` is given, only those for which it says so. All values keep their names; new ones are named "<the operator's
// first result>.<operator>". The graph is verified.
Result<ir::Graph> expand_native_forms(const ir::Graph& graph, const ir::OpTable& ops, const ExpandsNode& expands = {});

}  // namespace tessera
