// remove_dead_code removes nodes whose results are not needed.
//
// Before                                               After
//   %a: f32[T, 8] = silu(%x)                             %y: f32[T, 8] = gelu(%x)
//   %b: f32[T, 8] = scale(%a) {factor = 2.0}             return %y
//   %y: f32[T, 8] = gelu(%x)
//   return %y
//
// Nodes that write an operand or exchange data with other ranks stay. Declarations of inputs, weights and states stay,
// because the runner relies on them.
#pragma once

#include "tessera/compile/pass.h"

namespace tessera {

PassResult remove_dead_code(const ir::Graph& graph, const ir::OpTable& ops);

}  // namespace tessera
