#include "tessera/engine/steps/forced_acceptance.h"

namespace tessera {
namespace {

// Returns the probability p with which each of n = `drafts` drafts must be accepted, so that `kept` drafts are kept on
// average. The average is p + p² + … + pⁿ, because a draft is kept only if it and all drafts before it are accepted.
double probability_of(double kept, std::int64_t drafts) {
  double low = 0;
  double high = 1;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (std::int64_t draft = drafts; draft > 0; --draft) sum = (sum + 1) * middle;
    (sum < kept ? low : high) = middle;
  }
  return high;
}

}  // namespace

ForcedAcceptance::ForcedAcceptance(double tokens_per_step, std::int64_t most_drafts)
    : keeps_(probability_of(tokens_per_step - 1, most_drafts)) {}

StepOutputs ForcedAcceptance::choose(const ScheduledBatch& batch, const StepOutputs& outputs) {
  sampled_.assign(outputs.sampled.begin(), outputs.sampled.end());
  for (const ScheduledBatch::Entry& entry : batch.entries) {
    bool kept = true;
    for (std::int64_t draft = 0; kept && draft < entry.drafts; ++draft) {
      TokenId& sampled = sampled_[static_cast<std::size_t>(entry.row + draft)];
      const TokenId drafted = batch.draft_of(entry, draft);
      kept = keeps_(random_);
      if (kept) {
        sampled = drafted;
      } else if (sampled == drafted) {
        sampled = TokenId(drafted.value() == 0 ? 1 : drafted.value() - 1);
      }
    }
  }
  StepOutputs chosen = outputs;
  chosen.sampled = sampled_;
  return chosen;
}

}  // namespace tessera
