// The log-probabilities of one row of a forward.
#pragma once

#include <cstdint>

#include "tessera/engine/request.h"
#include "tessera/runner/forward_inputs.h"

namespace tessera {

// Returns the log-probability of `token` and of the `wanted` most probable tokens in one row. `row` is the row's index
// among the forward's wanted rows, whose logits were computed. `outputs` has the `top` most probable tokens for each
// wanted row.
inline TokenLogprobs logprobs_of(TokenId token, std::int64_t row, int top, int wanted, const StepOutputs& outputs) {
  TokenLogprobs made{.token = {.id = token, .logprob = outputs.logprobs[static_cast<std::size_t>(row)]}};
  made.top.reserve(static_cast<std::size_t>(wanted));
  for (int i = 0; i < wanted; ++i) {
    const auto at = static_cast<std::size_t>(row * top + i);
    made.top.push_back({.id = outputs.top_ids[at], .logprob = outputs.top_logprobs[at]});
  }
  return made;
}

}  // namespace tessera
