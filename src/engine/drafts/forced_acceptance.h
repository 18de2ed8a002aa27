// Keeps drafts by a draw instead of by what the model chose, so that the speed of speculative decoding can be measured
// with weights whose drafts are worth nothing. Texts are meaningless then.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/runner/forward_inputs.h"

namespace tessera {

class ForcedAcceptance {
 public:
  // A step with `most_drafts` drafts gives `tokens_per_step` tokens on average, including the one behind the last kept
  // draft. Each draft behind kept ones is kept with the same probability, so shorter steps give fewer tokens.
  // Precondition: 1 <= tokens_per_step <= most_drafts + 1.
  ForcedAcceptance(double tokens_per_step, std::int64_t most_drafts);

  // Returns the outputs with other samples: for each kept draft the draft itself, and for the first refused one another
  // token. The samples are valid until the next call.
  StepOutputs choose(const ScheduledBatch& batch, const StepOutputs& outputs);

 private:
  std::bernoulli_distribution keeps_;
  std::mt19937_64 random_;  // the default seed, so that runs are alike
  std::vector<TokenId> sampled_;
};

}  // namespace tessera
