// Builds the graphs that run after the LM head. These graphs choose a token from a row of logits, and compute
// log-probabilities of tokens. They are the same for every architecture.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// The maximum number of rows in one run of the graph "choose" or of the graph "logprobs". It limits the memory for
// copied logits and for masks.
inline constexpr std::int64_t kMaxChoiceRows = 64;
// Returns the maximum number of edits in one run of the graph "choose". An edit changes one logit. The edits of one row
// always fit, because a row has at most one edit for each token id.
constexpr std::int64_t max_choice_edits(std::int64_t vocab_size) { return std::max(vocab_size, std::int64_t{1} << 18); }

// Builds the sampler: logits f32[R, vocab] and per-row parameters → sampled_ids i32[R]. R is the number of rows.
Result<ir::Graph> build_sampler(std::int64_t vocab_size, const ir::OpTable& ops);

// Builds the graph "choose": choice_logits f32[R, vocab], edits, the sampler's parameters → sampled_ids i32[R]. The
// edits change choice_logits in place.
Result<ir::Graph> build_choose(std::int64_t vocab_size, const ir::OpTable& ops);

// Builds the graph "logprobs": choice_logits f32[R, vocab], logprob_targets i32[R] → logprobs f32[R], top_ids i32[R,
// 20], top_logprobs f32[R, 20].
Result<ir::Graph> build_logprobs(std::int64_t vocab_size, const ir::OpTable& ops);

}  // namespace tessera
