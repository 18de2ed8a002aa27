// From logits to token ids.
//
// The draw is exact and a pure function of one row: of its logits, parameters and random number, not of
// the row's place, the batch or the number of threads. To that end weights are integers (token_order.h): a
// token of logit x weighs ⌊2^42 · e^((x - max) / temperature)⌉ units, so that sums depend on no order.
// Less than half a unit, 1e-13 of the most probable token, is never drawn.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// argmax(x f32[R, V]) → i32[R]: the lowest index of the greatest value. NaN wins only where all are NaN: 0.
extern const ir::OpDecl kArgmax;
extern const KernelDef kArgmaxCpu;
extern const KernelDef kArgmaxCuda;

// sample(logits f32[R, V], temperature f32[R], top_k i32[R], top_p f32[R], min_p f32[R], seed i64[R],
//        choice i32[R], position i32[R]) → i32[R]
// Tokens stand in the order of descending logit, equal logits by id, NaN left out. Then, in this order:
//   temperature  weights as above; a temperature that is not above 0 takes the argmax
//   top_k        keeps the first top_k tokens; <= 0: all
//   top_p        keeps the fewest first tokens that weigh at least top_p of what is left; >= 1: all
//   min_p        of what is left, keeps the tokens that weigh at least min_p times as much as the most probable one:
//                those with (x - max) / temperature >= ln min_p, which the order has first; not above 0: all
//   the draw     u = ⌊bits · weight / 2^64⌋ of sampling_bits(seed, choice, position), philox.h; the token
//                is the first one whose weight and that of all before it exceed u
// A row whose greatest logit is infinite takes the argmax. V is at most 2^21.
extern const ir::OpDecl kSample;
extern const KernelDef kSampleCpu;
extern const KernelDef kSampleCuda;

}  // namespace tessera
