// remove_copies removes copies, and also casts, scales, splits and reshapes that change nothing.
//
// Before                                               After
//   %c: f32[T, 8] = copy(%x)                             all_reduce(mut %x)
//   all_reduce(mut %c)                                   %y: f32[T, 4] = linear(%x, %w)
//   %f: f32[T, 8] = cast(%c) {dtype = "f32"}             return %y
//   %y: f32[T, 4] = linear(%f, %w)
//   return %y
//
// A copy stays if the copy is written while the original is still read, or if the original is written while the copy is
// still read. It also stays if the copy is written but the original must not be written, because the original is an
// input, a weight, a state or an output. Finally, it stays if an output needs it to have separate memory. SGLang's
// counterpart is fix_functionalization, which removes the copies that functionalisation puts before every operator that
// writes.
#pragma once

#include "tessera/compile/pass.h"

namespace tessera {

PassResult remove_copies(const ir::Graph& graph, const ir::OpTable& ops);

}  // namespace tessera
