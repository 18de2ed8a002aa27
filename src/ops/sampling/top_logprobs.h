// Log-probabilities of a few tokens of each row, without writing those of the whole row.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

inline constexpr int kMaxTopLogprobs = 20;

// top_logprobs(logits f32[R, V], targets i32[R]) → logprobs f32[R], top_ids i32[R, 20], top_logprobs f32[R, 20]
//   logprobs[r]      of token targets[r]: x - log Σ e^x over the row; -inf where targets[r] is outside [0, V)
//   top_ids[r]       the first tokens in the order of descending logit, equal logits by id; -1 past the last number
//   top_logprobs[r]  of those; -inf past the last number
// NaN is no number: it is left out of the sum and of the order, and a target whose logit it is has -inf. A row whose
// greatest logit is infinite, or that has no number, is no distribution: every log-probability is -inf.
// The sum is of float32 exponentials, in double. A pure function of the row.
extern const ir::OpDecl kTopLogprobs;
extern const KernelDef kTopLogprobsCpu;
extern const KernelDef kTopLogprobsCuda;

}  // namespace tessera
