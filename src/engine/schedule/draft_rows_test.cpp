// A step has a limited number of rows. Each token and each draft takes one row. Catches: drafts that force the
// scheduler to divide a prompt although the whole prompt would fit without them; drafts that take most of the rows that
// prompts could use; drafts that take the row in which another request would be sampled; requests that still draft
// after drafting was stopped; and waits for results that count as a cost of drafting although a request without drafts
// needs the results too.
#include <gtest/gtest.h>

#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera {
namespace {

using test::kPageSize;
using test::next_step;
using test::sequence;
using test::shown;

// Adds sequence 1 and computes its prompt. The prompt repeats three tokens, so up to eight drafts can be made.
void add_repeating(Scheduler& scheduler) {
  std::unique_ptr<Sequence> repeating = sequence(1, 12, 30);
  for (std::size_t i = 0; i < 12; ++i) repeating->tokens[i] = TokenId(static_cast<std::int32_t>(i % 3));
  repeating->drafter.emplace(/*most_of_text=*/8);
  scheduler.add(std::move(repeating));
  const ScheduledBatch first = next_step(scheduler);
  scheduler.mark_submitted(first);
  Scheduler::settle(first.entries[0], TokenId(0));
}

// A step of 25 tokens has one decode. A prompt of 20 tokens is computed as a whole, and drafts get the 4 rows that
// remain. A prompt of 100 tokens would fill the 24 rows beside the decode, and drafts get a quarter of these rows.
TEST(DraftRows, DraftsTakeFewRowsOfPrompts) {
  for (const std::int64_t prompt : {20, 100}) {
    Scheduler scheduler({.limits = {.max_tokens = 25, .max_requests = 16}, .max_running = 16},
                        paged_cache(100, kPageSize));
    add_repeating(scheduler);
    scheduler.add(sequence(2, prompt, 1));
    const ScheduledBatch second = next_step(scheduler);
    EXPECT_EQ(shown(second), prompt == 20 ? "1:1* 2:20*" : "1:1* 2:18");
    EXPECT_EQ(second.entries[0].drafts, prompt == 20 ? 4 : 6) << "24 rows beside the decode";
    EXPECT_EQ(second.batch.num_tokens(), 25);
  }
}

TEST(DraftRows, DraftsLeaveARowForEveryRequest) {
  Scheduler scheduler({.limits = {.max_tokens = 25, .max_requests = 3}, .max_running = 2}, paged_cache(100, kPageSize));
  add_repeating(scheduler);
  scheduler.add(sequence(2, 4, 5));
  const ScheduledBatch second = next_step(scheduler);
  EXPECT_EQ(shown(second), "1:1* 2:4*");
  EXPECT_EQ(second.entries[0].drafts, 1) << "two requests and one draft are sampled";
}

class StoppedDrafts : public ::testing::Test {
 protected:
  // Adds a sequence of four tokens. Its drafts come from a layer if it is `tried`.
  void add(std::int64_t id, bool tried, bool waits = true) {
    std::unique_ptr<Sequence> added = sequence(id, 4, 9);
    if (tried) {
      EXPECT_TRUE(trials_->begin(DraftTrials::Clock::now(), {}));
      added->drafter.emplace(/*most_of_text=*/0, /*most_of_layer=*/3, trials_);
    }
    scheduler_.add(std::move(added));
    if (!waits) next_step(scheduler_);
  }

  std::shared_ptr<DraftTrials> trials_ = std::make_shared<DraftTrials>();
  Scheduler scheduler_{{.limits = {.max_tokens = 64, .max_requests = 16}, .max_running = 16},
                       paged_cache(100, kPageSize)};
};

TEST_F(StoppedDrafts, NeitherRunningNorWaitingRequestsDraft) {
  add(1, /*tried=*/true, /*waits=*/false);
  add(2, /*tried=*/true);
  EXPECT_TRUE(scheduler_.reads_at_once());
  EXPECT_TRUE(scheduler_.stop_drafting());
  EXPECT_FALSE(scheduler_.reads_at_once());
  EXPECT_FALSE(scheduler_.stop_drafting()) << "nobody drafts any more";
}

TEST_F(StoppedDrafts, DraftsFromTheTextGoOn) {
  std::unique_ptr<Sequence> repeating = sequence(1, 4, 9);
  repeating->drafter.emplace(/*most_of_text=*/8);
  scheduler_.add(std::move(repeating));
  EXPECT_FALSE(scheduler_.stop_drafting());
  EXPECT_TRUE(scheduler_.reads_at_once());
}

TEST_F(StoppedDrafts, WaitsAreBlamedIfNearlyAllDraft) {
  for (const std::int64_t id : {1, 2, 3}) add(id, /*tried=*/true);
  add(4, /*tried=*/false, /*waits=*/false);
  EXPECT_TRUE(scheduler_.waits_for_drafts_alone());
  add(5, /*tried=*/false, /*waits=*/false);
  EXPECT_FALSE(scheduler_.waits_for_drafts_alone()) << "two of five do not draft";
}

// Returns whether waits are blamed on drafts if `tried` of `all` running sequences draft.
bool are_blamed(std::int64_t tried, std::int64_t all) {
  const auto trials = std::make_shared<DraftTrials>();
  Scheduler scheduler({.limits = {.max_tokens = 512, .max_requests = 128}, .max_running = 128},
                      paged_cache(200, kPageSize));
  for (std::int64_t id = 1; id <= all; ++id) {
    std::unique_ptr<Sequence> added = sequence(id, 4, 9);
    if (id <= tried) {
      EXPECT_TRUE(trials->begin(DraftTrials::Clock::now(), {}));
      added->drafter.emplace(/*most_of_text=*/0, /*most_of_layer=*/3, trials);
    }
    scheduler.add(std::move(added));
  }
  return next_step(scheduler).waits_for_drafts_alone;
}

TEST(DraftRows, WaitsAreBlamedIfEightAndAnEighthDraft) {
  EXPECT_TRUE(are_blamed(8, 64));
  EXPECT_FALSE(are_blamed(8, 65)) << "less than an eighth";
  EXPECT_FALSE(are_blamed(7, 16)) << "too few to show what others would keep";
}

// Returns what the drafts of a step are said to save in which the first `tried` of 16 sequences make drafts. The others
// await trials, or will never draft.
DraftSaving saving_of(std::int64_t tried, bool awaits = true) {
  const auto trials = std::make_shared<DraftTrials>();
  const DraftCosts costs{.forward_ms = [](std::int64_t rows, std::int64_t) {
    return std::optional(10 + 0.01 * static_cast<double>(rows));
  }};
  Scheduler scheduler({.limits = {.max_tokens = 256, .max_requests = 64}, .max_running = 64},
                      paged_cache(100, kPageSize), {}, {}, costs);
  for (std::int64_t id = 1; id <= 16; ++id) {
    std::unique_ptr<Sequence> added = sequence(id, 4, 9);
    if (id <= tried) {
      EXPECT_TRUE(trials->begin(DraftTrials::Clock::now(), {}));
      added->drafter.emplace(/*most_of_text=*/0, /*most_of_layer=*/3, trials);
      added->drafter->set_layer_row(0);
    } else {
      added->awaits_trials = awaits;
    }
    scheduler.add(std::move(added));
  }
  const ScheduledBatch prompts = next_step(scheduler);
  scheduler.mark_submitted(prompts);
  for (const ScheduledBatch::Entry& entry : prompts.entries) Scheduler::settle(entry, TokenId(0));
  return next_step(scheduler).saving.value_or(DraftSaving{});
}

TEST(ImaginedDrafts, HalfOfTheRequestsShowTheSavingOfAll) {
  const DraftSaving of_all = saving_of(16);
  const DraftSaving of_half = saving_of(8);
  EXPECT_GT(of_all.gained_ms, 0);
  EXPECT_DOUBLE_EQ(of_half.gained_ms, of_all.gained_ms);
  EXPECT_DOUBLE_EQ(of_half.taken_ms, of_all.taken_ms);
  EXPECT_LT(of_half.predicted_ms, of_all.predicted_ms) << "the predicted time is that of the step itself";
}

TEST(ImaginedDrafts, RequestsThatGaveUpDraftingSaveNothing) {
  EXPECT_LT(saving_of(8, /*awaits=*/false).gained_ms, saving_of(16).gained_ms);
}

TEST_F(StoppedDrafts, AWaitingRequestThatNeedsResultsIsToBlame) {
  add(1, /*tried=*/true, /*waits=*/false);
  EXPECT_TRUE(scheduler_.waits_for_drafts_alone());
  std::unique_ptr<Sequence> scored = sequence(2, 4, 9);
  scored->request.score = true;
  scheduler_.add(std::move(scored));
  EXPECT_FALSE(scheduler_.waits_for_drafts_alone());
}

}  // namespace
}  // namespace tessera
