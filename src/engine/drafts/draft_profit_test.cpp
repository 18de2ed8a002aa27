// Catches: drafting that goes on although it costs more than it saves; and drafting that stops after a few bad steps.
#include "tessera/engine/drafts/draft_profit.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(DraftProfit, SixteenStepsWithoutGainAreALoss) {
  DraftProfit profit;
  for (int step = 0; step < 15; ++step) {
    profit.add({}, 0.1, 10);
    EXPECT_FALSE(profit.is_loss()) << step;
  }
  profit.add({}, 0.1, 10);
  EXPECT_TRUE(profit.is_loss());
  profit.clear();
  EXPECT_FALSE(profit.is_loss());
  profit.add({}, 0.1, 10);
  EXPECT_FALSE(profit.is_loss());
}

TEST(DraftProfit, OneGoodStepOutweighsSeveralWaits) {
  DraftProfit profit;
  for (int step = 0; step < 200; ++step) {
    profit.add({.gained_ms = step % 8 == 0 ? 4.0 : 0}, 0.3, 10);
    EXPECT_FALSE(profit.is_loss()) << step;
  }
}

TEST(DraftProfit, ALossAfterManyGoodStepsIsSeen) {
  DraftProfit profit;
  for (int step = 0; step < 1000; ++step) profit.add({.gained_ms = 5}, 1, 10);
  int steps = 0;
  while (!profit.is_loss() && steps < 100) profit.add({}, 1, 10), ++steps;
  EXPECT_LT(steps, 40);
}

bool loses(const DraftSaving& saving, double forward_ms, double waited_ms = 1) {
  DraftProfit profit;
  for (int step = 0; step < 16; ++step) profit.add(saving, waited_ms, forward_ms);
  return profit.is_loss();
}

TEST(DraftProfit, DraftsOfASlowStepWithPromptsCostMore) {
  const DraftSaving mixed{.gained_ms = 8, .taken_ms = 5, .predicted_ms = 40, .has_prompts = true};
  EXPECT_FALSE(loses(mixed, 40));
  EXPECT_FALSE(loses(mixed, 55)) << "8 ms are gained for 6.9 and 1";
  EXPECT_TRUE(loses(mixed, 57)) << "8 ms are gained for 7.1 and 1";
  EXPECT_FALSE(loses(mixed, 4)) << "a fast forward makes drafts no cheaper";
  const DraftSaving good{.gained_ms = 12, .taken_ms = 5, .predicted_ms = 40, .has_prompts = true};
  EXPECT_FALSE(loses(good, 4000)) << "at most twice the prediction";
}

TEST(DraftProfit, SlowDecodesGainMoreToo) {
  const DraftSaving decode{.gained_ms = 5.5, .taken_ms = 5, .predicted_ms = 40};
  EXPECT_TRUE(loses(decode, 40)) << "5.5 ms are gained for 5 and 1";
  EXPECT_FALSE(loses(decode, 80)) << "11 ms are gained for 10 and 1";
}

TEST(DraftProfit, OneLongWaitIsNoLoss) {
  DraftProfit profit;
  for (int step = 0; step < 20; ++step) profit.add({.gained_ms = 2}, 1, 10);
  profit.add({.gained_ms = 2}, 500, 10);
  EXPECT_FALSE(profit.is_loss());
}

}  // namespace
}  // namespace tessera
