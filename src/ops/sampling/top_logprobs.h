// Computes, for each row, the log-probabilities of a target token and of the 20 most probable tokens.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

inline constexpr int kMaxTopLogprobs = 20;

// top_logprobs(logits f32[R, V], targets i32[R]) → logprobs f32[R], top_ids i32[R, 20], top_logprobs f32[R, 20]
//   logprobs[r]      the log-probability x - log Σ e^x of token targets[r]; -inf for targets outside [0, V)
//   top_ids[r]       the first 20 tokens by descending logit, and by id among equal logits; -1 past the last token
//   top_logprobs[r]  the log-probabilities of top_ids[r]; -inf past the last token
// Tokens whose logit is NaN are left out of the sum and of the order. If a target is one of these, its log-probability
// is -inf. A row whose greatest logit is infinite, or whose logits are all NaN, is no distribution, so every
// log-probability is -inf. The exponentials are float32. CUDA adds them in double. The CPU adds 2048 of them at a time
// in float32, and these sums in double. The results are a pure function of the row.
extern const ir::OpDecl kTopLogprobs;
extern const KernelDef kTopLogprobsCpu;
extern const KernelDef kTopLogprobsCuda;

}  // namespace tessera
