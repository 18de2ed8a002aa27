// remove_copies removes copies, and also casts, scales, splits and reshapes that change nothing.
//
// Before                                               After
//   %c: f32[T, 8] = copy(%x)                             all_reduce(mut %x)
//   all_reduce(mut %c)                                   %y: f32[T, 4] = linear(%x, %w)
//   %f: f32[T, 8] = cast(%c) {dtype = "f32"}             return %y
//   %y: f32[T, 4] = linear(%f, %w)
//   return %y
//
// A copy stays if a write would make it differ from its original: one of the two is written while the other is still
// read, or the copy is written and the original must not be written, because it is an input, a weight, a state or an
// output. A copy also stays if it gives an output memory of its own. SGLang's counterpart is fix_functionalization,
// which removes the copies that functionalisation puts before every operator that writes.
#pragma once

#include "tessera/compile/pass.h"

namespace tessera {

PassResult remove_copies(const ir::Graph& graph, const ir::OpTable& ops);

}  // namespace tessera
