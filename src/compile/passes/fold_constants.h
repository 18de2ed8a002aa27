// fold_constants combines nodes whose attributes are known numbers.
//
// Before                                               After
//   %a: f32[T, 8] = scale(%x) {factor = 4.0}             %b: f32[T, 8] = scale(%x) {factor = 2.0}
//   %b: f32[T, 8] = scale(%a) {factor = 0.5}             %d: bf16[T, 8] = cast(%y) {dtype = "bf16"}
//   %c: f32[T, 8] = cast(%y) {dtype = "f32"}             %f: f32[T, 2, 4] = reshape(%x) {shape = "T, 2, 4"}
//   %d: bf16[T, 8] = cast(%c) {dtype = "bf16"}           (%a, %c and %e are left to remove_dead_code, and %d to
//   %e: f32[2*T, 4] = reshape(%x) {shape = "2*T, 4"}     remove_copies if %y is bf16)
//   %f: f32[T, 2, 4] = reshape(%e) {shape = "T, 2, 4"}
//
// The contents of inputs and weights are unknown, so only attributes can be folded. The pass folds chains of two
// scales, of two reshapes, and of two casts if the first cast is exact. A folded scale rounds once instead of twice.
// Two scales stay if the product of their factors leaves the normal range of float32. They also stay if the result of
// the first scale has other uses, because folding would then save nothing.
#pragma once

#include "tessera/compile/pass.h"

namespace tessera {

PassResult fold_constants(const ir::Graph& graph, const ir::OpTable& ops);

}  // namespace tessera
