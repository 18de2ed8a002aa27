// Catches: a mean number of tokens per step that differs from the requested mean; refused drafts that are kept; and a
// sampled token that changes although its sequence has no drafts.
#include "tessera/engine/steps/forced_acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

// A step of two sequences: one with `drafts` drafts, and one without.
struct TwoSequences {
  explicit TwoSequences(std::int64_t drafts) {
    batch.batch.input_ids.assign(static_cast<std::size_t>(drafts) + 2, TokenId(7));
    ScheduledBatch::Entry entry{};
    entry.new_tokens = 1;
    entry.drafts = drafts;
    batch.entries.push_back(entry);
    entry.first_token = drafts + 1;
    entry.row = drafts + 1;
    entry.drafts = 0;
    batch.entries.push_back(entry);
    sampled.assign(batch.batch.input_ids.size(), TokenId(7));
  }

  StepOutputs outputs() const { return {.sampled = sampled, .logprobs = {}, .top_ids = {}, .top_logprobs = {}}; }
  // Returns how many drafts are kept.
  std::int64_t kept(const StepOutputs& chosen) const {
    const ScheduledBatch::Entry& entry = batch.entries[0];
    std::int64_t count = 0;
    while (count < entry.drafts && chosen.sampled[static_cast<std::size_t>(count)] == batch.draft_of(entry, count))
      ++count;
    return count;
  }

  ScheduledBatch batch;
  std::vector<TokenId> sampled;
};

double mean_tokens(double wanted, std::int64_t drafts) {
  ForcedAcceptance forced(wanted, drafts);
  const TwoSequences step(drafts);
  std::int64_t tokens = 0;
  constexpr int kSteps = 20'000;
  for (int i = 0; i < kSteps; ++i) tokens += 1 + step.kept(forced.choose(step.batch, step.outputs()));
  return static_cast<double>(tokens) / kSteps;
}

TEST(ForcedAcceptance, KeepsAsManyDraftsAsAskedForOnAverage) {
  EXPECT_EQ(mean_tokens(1, 3), 1) << "the model would have kept all";
  EXPECT_NEAR(mean_tokens(1.2, 3), 1.2, 0.02);
  EXPECT_NEAR(mean_tokens(3.2, 3), 3.2, 0.05);
  EXPECT_EQ(mean_tokens(4, 3), 4);
}

TEST(ForcedAcceptance, ChangesNoSampleWithoutDrafts) {
  ForcedAcceptance forced(1, 3);
  const TwoSequences step(3);
  const StepOutputs chosen = forced.choose(step.batch, step.outputs());
  EXPECT_EQ(chosen.sampled.back(), TokenId(7));
  EXPECT_NE(chosen.sampled.front(), TokenId(7));
}

}  // namespace
}  // namespace tessera
