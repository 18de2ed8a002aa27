// Computes log-probabilities of a few tokens of each row, and does not write those of other tokens.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

inline constexpr int kMaxTopLogprobs = 20;

// top_logprobs(logits f32[R, V], targets i32[R]) → logprobs f32[R], top_ids i32[R, 20], top_logprobs f32[R, 20]
//   logprobs[r]      log-probability of token targets[r]: x - log Σ e^x over the row; -inf for targets outside [0, V)
//   top_ids[r]       the first tokens in the order of descending logit, equal logits by id; -1 past the last token
//   top_logprobs[r]  log-probabilities of top_ids[r]; -inf past the last token
// NaN is left out of the sum and of the order, and a target whose logit is NaN has -inf. A row whose greatest logit is
// infinite, or whose logits are all NaN, is no distribution: every log-probability is -inf. The exponentials are
// float32. They are added in double; the CPU first adds 2048 at a time in float32. The results are a pure function of
// the row.
extern const ir::OpDecl kTopLogprobs;
extern const KernelDef kTopLogprobsCpu;
extern const KernelDef kTopLogprobsCuda;

}  // namespace tessera
