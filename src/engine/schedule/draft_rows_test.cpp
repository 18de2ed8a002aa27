// Catches: drafts that divide a prompt although the whole prompt would fit; drafts that take most rows of prompts; and
// drafts that take the sampled row of another request.
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
// remain. A prompt of 100 tokens fills the step, and drafts get a quarter of its rows.
TEST(DraftRows, DraftsTakeFewRowsOfPrompts) {
  for (const std::int64_t prompt : {20, 100}) {
    Scheduler scheduler({.limits = {.max_tokens = 25, .max_requests = 16}}, paged_cache(100, kPageSize));
    add_repeating(scheduler);
    scheduler.add(sequence(2, prompt, 1));
    const ScheduledBatch second = next_step(scheduler);
    EXPECT_EQ(shown(second), prompt == 20 ? "1:1* 2:20*" : "1:1* 2:18");
    EXPECT_EQ(second.entries[0].drafts, prompt == 20 ? 4 : 6) << "24 rows beside the decode";
    EXPECT_EQ(second.batch.num_tokens(), 25);
  }
}

TEST(DraftRows, DraftsLeaveARowForEveryRequest) {
  Scheduler scheduler({.limits = {.max_tokens = 25, .max_requests = 3}}, paged_cache(100, kPageSize));
  add_repeating(scheduler);
  scheduler.add(sequence(2, 4, 5));
  const ScheduledBatch second = next_step(scheduler);
  EXPECT_EQ(shown(second), "1:1* 2:4*");
  EXPECT_EQ(second.entries[0].drafts, 1) << "two requests and one draft are sampled";
}

}  // namespace
}  // namespace tessera
