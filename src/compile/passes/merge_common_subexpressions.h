// merge_common_subexpressions merges two nodes that compute the same value from the same data.
//
// Before                                               After
//   %a: f32[T, 8] = rms_norm(%x, %w) {eps = 1e-06}       %a: f32[T, 8] = rms_norm(%x, %w) {eps = 1e-06}
//   %b: f32[T, 8] = rms_norm(%x, %w) {eps = 1e-06}       %y: f32[T, 8] = mul(%a, %a)
//   %y: f32[T, 8] = mul(%a, %b)                          return %y
//   return %y
//
// Two nodes compute the same value if their operators, attributes and operands are the same (add and mul accept either
// order), and no node between them writes an operand's memory. After a merge, both results would share memory, so nodes
// are not merged if a later node writes one of their results. Nodes that write, allocate memory or exchange data with
// other ranks are not merged either.
#pragma once

#include "tessera/compile/pass.h"

namespace tessera {

PassResult merge_common_subexpressions(const ir::Graph& graph, const ir::OpTable& ops);

}  // namespace tessera
