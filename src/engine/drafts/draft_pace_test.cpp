// The test covers the estimated probability that a request's next drafts are kept. Catches: an estimate that does not
// follow how many of the request's own drafts are kept; an estimate for a request without earlier drafts that does not
// follow how many drafts of other requests are kept; pauses of drafting that do not grow while no draft is kept; and a
// request that pauses after one refused draft although most of its drafts were kept.
#include "tessera/engine/drafts/draft_pace.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(DraftPace, EstimatesFollowWhatIsKept) {
  DraftPace pace;
  constexpr double kTypical = 0.5;
  EXPECT_EQ(pace.next(kTypical), 0.5);
  for (int step = 0; step < 40; ++step) pace.judge(3, 3, kTypical);
  EXPECT_GT(pace.next(kTypical), 0.96);
  // The first draft is kept, the second is refused, and the third is not decided.
  for (int step = 0; step < 40; ++step) pace.judge(3, 1, kTypical);
  EXPECT_NEAR(pace.next(kTypical), 0.5, 0.02);
}

TEST(DraftPace, OtherRequestsCountUntilOwnDraftsDo) {
  DraftPace pace;
  EXPECT_EQ(pace.next(0.2), 0.2);
  pace.judge(1, 1, 0.2);
  EXPECT_NEAR(pace.next(0.2), 1.4 / 3, 1e-9);
  EXPECT_NEAR(pace.next(0.8), 2.6 / 3, 1e-9);
  for (int step = 0; step < 40; ++step) pace.judge(3, 3, 0.2);
  EXPECT_GT(pace.next(0.2), 0.9);
}

TEST(DraftPace, PausesGrowWhileNothingIsKept) {
  DraftPace pace;
  constexpr double kTypical = 0.6;
  while (pace.next(kTypical) > 0) pace.judge(1, 0, kTypical);
  for (const int pause : {1, 2, 4, 8, 16, 32, 32}) {
    for (int step = pause == 1 ? 1 : 0; step < pause; ++step)
      EXPECT_EQ(pace.next(kTypical), 0) << step << " of " << pause;
    EXPECT_EQ(pace.next(kTypical), 0.6) << "a try after " << pause;
    pace.judge(1, 0, kTypical);
  }
  EXPECT_EQ(pace.next(kTypical), 0);
}

TEST(DraftPace, AKeptDraftEndsThePauses) {
  DraftPace pace;
  constexpr double kTypical = 0.6;
  while (pace.next(kTypical) > 0) pace.judge(1, 0, kTypical);
  EXPECT_GT(pace.next(kTypical), 0);
  pace.judge(1, 1, kTypical);
  EXPECT_GT(pace.next(kTypical), 0.6);
}

TEST(DraftPace, OneMissOfAGoodSourceIsNoPause) {
  DraftPace pace;
  constexpr double kTypical = 0.75;
  for (int step = 0; step < 10; ++step) pace.judge(3, 3, kTypical);
  pace.judge(3, 0, kTypical);
  EXPECT_GT(pace.next(kTypical), 0.5);
}

}  // namespace
}  // namespace tessera
