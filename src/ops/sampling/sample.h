// Operators that turn logits into token ids.
//
// The draw is exact. The chosen token is a pure function of one row's logits, parameters and random number. The row's
// place, the batch and the number of threads do not matter. Weights are integers (token_order.h), so sums do not depend
// on the order of addition. A token with logit x weighs ⌊2^42 · e^((x - max) / temperature)⌉ units, where max is the
// row's greatest logit. A token is never drawn if it weighs less than half a unit, which is 1e-13 of the most probable
// token's weight.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// argmax(x f32[R, V]) → i32[R]: the lowest index of the greatest value. NaN never wins. If all values are NaN, the
// result is 0.
extern const ir::OpDecl kArgmax;
extern const KernelDef kArgmaxCpu;
extern const KernelDef kArgmaxCuda;

// sample(logits f32[R, V], temperature f32[R], top_k i32[R], top_p f32[R], min_p f32[R], seed i64[R],
//        choice i32[R], position i32[R]) → i32[R]
// The tokens are ordered by descending logit, and by id among equal logits. Tokens whose logit is NaN are left out. In
// the steps that follow, "first" means the first in this order:
//   temperature  gives the weights above; a temperature that is not above 0 takes the argmax
//   top_k        keeps the first top_k tokens; a value <= 0 keeps all
//   top_p        keeps the shortest sequence of first tokens whose weight is at least top_p times the weight of all
//                tokens that top_k has kept; a value >= 1 keeps all
//   min_p        keeps the remaining tokens with (x - max) / temperature >= ln min_p; these weigh at least min_p times
//                as much as the most probable token; a value that is not above 0 keeps all
//   the draw     u = ⌊bits · weight / 2^64⌋, where bits = sampling_bits(seed, choice, position) (philox.h) and weight
//                is the weight of all tokens kept; the token is the first one whose cumulative weight exceeds u
// A row whose greatest logit is infinite takes the argmax. V is at most 2^21.
extern const ir::OpDecl kSample;
extern const KernelDef kSampleCpu;
extern const KernelDef kSampleCuda;

}  // namespace tessera
