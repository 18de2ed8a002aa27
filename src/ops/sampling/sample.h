// Operators that turn logits into token ids.
//
// The draw is exact. It is a pure function of one row's logits, parameters and random number; the row's place, the
// batch and the number of threads do not matter. To make sums independent of the order of addition, weights are
// integers (token_order.h): a token of logit x weighs ⌊2^42 · e^((x - max) / temperature)⌉ units, where max is the
// row's greatest logit. A token of less than half a unit, 1e-13 of the most probable token's weight, is never drawn.
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
// The tokens are ordered by descending logit, equal logits by id; NaN is left out. Then these steps follow:
//   temperature  gives the weights above; a temperature that is not above 0 takes the argmax
//   top_k        keeps the first top_k tokens; <= 0: all
//   top_p        keeps the shortest prefix that weighs at least top_p times the weight of what is left; >= 1: all
//   min_p        keeps those remaining tokens that weigh at least min_p times as much as the most probable one: those
//                with (x - max) / temperature >= ln min_p, which are first in the order; not above 0: all
//   the draw     u = ⌊bits · weight / 2^64⌋ with sampling_bits(seed, choice, position), philox.h; the token is the
//                first one whose cumulative weight exceeds u
// A row whose greatest logit is infinite takes the argmax. V is at most 2^21.
extern const ir::OpDecl kSample;
extern const KernelDef kSampleCpu;
extern const KernelDef kSampleCuda;

}  // namespace tessera
