// Keeps drafts at random, whether or not the model chose them. The texts become meaningless, but the speed of
// speculative decoding can be measured with random weights. Without forced acceptance, a model with random weights
// would refuse nearly all drafts.
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
  // A step with `most_drafts` drafts outputs `tokens_per_step` tokens on average, including the token after the last
  // kept draft. Every draft is kept with the same probability if all drafts before it are kept, so a step with fewer
  // drafts outputs fewer tokens. Precondition: 1 <= tokens_per_step <= most_drafts + 1.
  ForcedAcceptance(double tokens_per_step, std::int64_t most_drafts);

  // Returns the outputs with some sampled tokens replaced. The row before a kept draft gets the draft as its sampled
  // token. The row before the first refused draft gets a token that differs from the draft. The samples are valid until
  // the next call.
  StepOutputs choose(const ScheduledBatch& batch, const StepOutputs& outputs);

 private:
  std::bernoulli_distribution keeps_;
  std::mt19937_64 random_;  // has the default seed, so that all runs are equal
  std::vector<TokenId> sampled_;
};

}  // namespace tessera
