// merge_common_subexpressions computes a value once if it would be computed twice from the same contents.
//
// Before                                               After
//   %a: f32[T, 8] = rms_norm(%x, %w) {eps = 1e-06}       %a: f32[T, 8] = rms_norm(%x, %w) {eps = 1e-06}
//   %b: f32[T, 8] = rms_norm(%x, %w) {eps = 1e-06}       %y: f32[T, 8] = mul(%a, %a)
//   %y: f32[T, 8] = mul(%a, %b)                          return %y
//   return %y
//
// Contents are the same if operator, attributes and operands are the same (the operands of add and mul in either
// order), and no node between the two writes an operand's memory. The results share memory afterwards, so that neither
// may be written by a later node. Nodes that write, that allocate memory or that meet other ranks are not merged.
#pragma once

#include "tessera/compile/pass.h"

namespace tessera {

PassResult merge_common_subexpressions(const ir::Graph& graph, const ir::OpTable& ops);

}  // namespace tessera
