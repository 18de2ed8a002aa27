// Catches: drafts that are counted at the wrong position; and a sum over engines that leaves out an engine's drafts.
#include "tessera/engine/drafts/draft_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DraftStats, CountsByPositionOverAllEngines) {
  DraftStats stats;
  EXPECT_THAT(stats.by_position(stats.drafted_at), IsEmpty());
  EXPECT_EQ(stats.mean_length(), 0);
  stats.add(3, 2);
  stats.add(1, 0);
  DraftStats other;
  other.add(2, 2);
  stats.add(other);
  EXPECT_EQ(stats.steps, 3);
  EXPECT_EQ(stats.drafted, 6);
  EXPECT_EQ(stats.kept, 4);
  EXPECT_THAT(stats.by_position(stats.drafted_at), ElementsAre(3, 2, 1));
  EXPECT_THAT(stats.by_position(stats.kept_at), ElementsAre(2, 2, 0));
  EXPECT_DOUBLE_EQ(stats.mean_length(), 1 + 4.0 / 3);
  EXPECT_DOUBLE_EQ(stats.kept_share(), 4.0 / 6);
}

TEST(DraftStats, WithoutDraftsShareAndLengthAreZero) {
  EXPECT_EQ(DraftTotals().mean_length(), 0);
  EXPECT_EQ(DraftTotals().kept_share(), 0);
}

TEST(DraftStats, CountsAStepWithTheMostDrafts) {
  DraftStats stats;
  stats.add(kMostDrafts, kMostDrafts);
  EXPECT_EQ(stats.positions(), std::size_t{kMostDrafts});
}

}  // namespace
}  // namespace tessera
