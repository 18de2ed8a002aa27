// If the graphs of all sizes exceed a memory budget, the graphs of some sizes are dropped. Catches: a budget that is
// exceeded; graphs that are dropped although they would fit; a size that is dropped before another size whose graph
// saves less work per byte; and a largest prefill size that is dropped while other sizes are kept.
#include "tessera/runner/capture/graph_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

BudgetLadder ladder(std::vector<std::int64_t> sizes, std::int64_t bytes_each) {
  return {.sizes = std::move(sizes), .bytes_each = bytes_each};
}
const BudgetLadder kNone = ladder({}, 0);

TEST(GraphBudget, WhatFitsIsKept) {
  const BudgetedSizes kept = fit_graph_budget(ladder({4, 8, 16}, 100), ladder({1, 2}, 10), kNone, 320);
  EXPECT_THAT(kept.prefill, ElementsAre(4, 8, 16));
  EXPECT_THAT(kept.decode, ElementsAre(1, 2));
  EXPECT_THAT(kept.dropped_prefill, IsEmpty());
  EXPECT_THAT(kept.dropped_decode, IsEmpty());
  EXPECT_EQ(kept.bytes, 320);
}

TEST(GraphBudget, EvenlySpacedSizesThatSaveLeastAreDroppedFirst) {
  // Sizes 120 and 124 save little padding, since 128 is only slightly larger. Without size 64, its forwards would be
  // padded to 120.
  const BudgetedSizes kept = fit_graph_budget(ladder({1, 64, 120, 124, 128}, 1), kNone, kNone, 3);
  EXPECT_THAT(kept.prefill, ElementsAre(1, 64, 128));
  EXPECT_THAT(kept.dropped_prefill, ElementsAre(120, 124));
}

TEST(GraphBudget, NeighboursOfADroppedSizeAreValuedAgain) {
  // Size 126 is dropped first. If 124 were dropped next, its forwards would be padded to 128 and no longer to 126, so
  // 124 is now worth more. The choice of the second size to drop must use this new value.
  const BudgetLadder sizes = ladder({64, 120, 124, 126, 128}, 1);
  const BudgetedSizes first = fit_graph_budget(sizes, kNone, kNone, 4);
  ASSERT_EQ(first.dropped_prefill.size(), 1u);
  const BudgetedSizes second = fit_graph_budget(sizes, kNone, kNone, 3);
  // Each step drops the least valuable remaining size.
  const std::vector<std::int64_t>& left = first.prefill;
  std::size_t least = 0;
  for (std::size_t i = 1; i + 1 < left.size(); ++i)
    if (size_value(sizes, left, i) < size_value(sizes, left, least)) least = i;
  std::vector<std::int64_t> want = left;
  want.erase(want.begin() + static_cast<std::ptrdiff_t>(least));
  EXPECT_EQ(second.prefill, want);
}

TEST(GraphBudget, AHistogramOverrulesThePrior) {
  BudgetLadder sizes = ladder({16, 32, 64, 128}, 1);
  sizes.histogram = {{30, 1000}, {60, 1}, {10, 1}, {100, 50}};
  EXPECT_THAT(fit_graph_budget(sizes, kNone, kNone, 2).prefill, ElementsAre(32, 128));
  sizes.histogram = {{60, 1000}, {30, 1}, {10, 1}, {100, 50}};
  EXPECT_THAT(fit_graph_budget(sizes, kNone, kNone, 2).prefill, ElementsAre(64, 128));
}

TEST(GraphBudget, ValueIsCountedPerByte) {
  // The ladders are equal, but one takes ten times the memory. Sizes of that ladder are dropped first.
  const std::vector<std::int64_t> sizes = {1, 2, 4, 8};
  const BudgetedSizes dear_prefill = fit_graph_budget(ladder(sizes, 10), ladder(sizes, 1), kNone, 24);
  EXPECT_EQ(dear_prefill.prefill.size(), 2u);
  EXPECT_THAT(dear_prefill.dropped_decode, IsEmpty());
  const BudgetedSizes dear_decode = fit_graph_budget(ladder(sizes, 1), ladder(sizes, 10), kNone, 24);
  EXPECT_THAT(dear_decode.dropped_prefill, IsEmpty());
  EXPECT_EQ(dear_decode.decode.size(), 2u);
}

TEST(GraphBudget, TheLargestPrefillSizeIsDroppedLast) {
  const BudgetLadder prefill = ladder({4, 8, 16}, 100);
  const BudgetLadder decode = ladder({1, 2}, 100);
  // No forward uses the largest size, and it is still kept.
  BudgetLadder unused = prefill;
  unused.histogram = {{3, 10}, {7, 10}};
  const BudgetedSizes one = fit_graph_budget(unused, decode, kNone, 100);
  EXPECT_THAT(one.prefill, ElementsAre(16));
  EXPECT_THAT(one.decode, IsEmpty());
  const BudgetedSizes none = fit_graph_budget(prefill, decode, kNone, 99);
  EXPECT_THAT(none.prefill, IsEmpty());
  EXPECT_THAT(none.dropped_prefill, ElementsAre(4, 8, 16));
  EXPECT_EQ(none.bytes, 0);
}

TEST(GraphBudget, TheLargestDecodeSizeIsWorthAllItsForwards) {
  // Without size 8, half of the forwards would have no graph. Without size 4, the other half would be padded to 8.
  BudgetLadder decode = ladder({4, 8}, 1);
  decode.histogram = {{4, 10}, {8, 10}};
  EXPECT_THAT(fit_graph_budget(kNone, decode, kNone, 1).decode, ElementsAre(8));
}

TEST(GraphBudget, WithoutPaddingASizeIsWorthItsOwnForwards) {
  BudgetLadder exact = ladder({1, 2, 3}, 1);
  exact.padding = false;
  exact.histogram = {{1, 5}, {2, 1}, {3, 4}};
  EXPECT_THAT(fit_graph_budget(kNone, exact, kNone, 2).decode, ElementsAre(1, 3));
}

// For real ladders and many budgets, the kept graphs never exceed the budget. If a graph is dropped, less than the
// memory of one prefill graph stays unused. A larger budget never keeps fewer graphs.
TEST(GraphBudget, HoldsForEveryBudgetOfTheDefaultLadders) {
  const BudgetLadder prefill = ladder(prefill_ladder(8192), 3900);
  const BudgetLadder decode = ladder(decode_ladder(256), 890);
  const std::int64_t all = std::ssize(prefill.sizes) * 3900 + std::ssize(decode.sizes) * 890;
  std::size_t before = 0;
  for (std::int64_t budget = 0; budget <= all; budget += 1777) {
    const BudgetedSizes kept = fit_graph_budget(prefill, decode, kNone, budget);
    EXPECT_LE(kept.bytes, budget);
    EXPECT_EQ(kept.prefill.size() + kept.dropped_prefill.size(), prefill.sizes.size());
    EXPECT_EQ(kept.decode.size() + kept.dropped_decode.size(), decode.sizes.size());
    if (budget >= 3900) {
      ASSERT_FALSE(kept.prefill.empty()) << budget;
      EXPECT_EQ(kept.prefill.back(), 8192) << budget;
    }
    // The graph that was dropped last, which takes at most 3900 bytes, would not fit.
    if (kept.bytes < all) {
      EXPECT_GT(kept.bytes + 3900, budget);
    }
    EXPECT_GE(kept.prefill.size() + kept.decode.size(), before);
    before = kept.prefill.size() + kept.decode.size();
  }
  EXPECT_THAT(fit_graph_budget(prefill, decode, kNone, all).dropped_prefill, IsEmpty());
}

// The sizes of a vision tower compete with the other sizes. The largest prefill size is dropped after all tower sizes.
TEST(GraphBudget, BudgetsOfATowerAreDroppedLikeOthers) {
  const BudgetLadder prefill = ladder({64, 128}, 10);
  const BudgetLadder decode = ladder({1, 2}, 10);
  const BudgetLadder tower = ladder({64, 120, 124, 128}, 10);
  const BudgetedSizes all = fit_graph_budget(prefill, decode, tower, 80);
  EXPECT_THAT(all.vision, ElementsAre(64, 120, 124, 128));
  EXPECT_EQ(all.bytes, 80);
  const BudgetedSizes six = fit_graph_budget(prefill, decode, tower, 60);
  EXPECT_THAT(six.dropped_vision, ElementsAre(120, 124)) << "they save least";
  EXPECT_THAT(six.dropped_prefill, IsEmpty());
  EXPECT_THAT(six.dropped_decode, IsEmpty());
  EXPECT_EQ(six.bytes, 60);
  const BudgetedSizes one = fit_graph_budget(prefill, decode, tower, 10);
  EXPECT_THAT(one.prefill, ElementsAre(128));
  EXPECT_THAT(one.vision, IsEmpty());
}

}  // namespace
}  // namespace tessera
