// Catches: a slowdown that is not learned, that is learned for other loads too, or that is never forgotten.
#include "tessera/engine/drafts/draft_slowdown.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(DraftSlowdown, LearnsTheRatioOfEachLoad) {
  DraftSlowdown slowdown;
  EXPECT_EQ(slowdown.factor(64), 1);
  for (int i = 0; i < 40; ++i) slowdown.add(70, 20, 30);
  EXPECT_NEAR(slowdown.factor(64), 1.5, 0.01) << "64 to 127 requests";
  EXPECT_EQ(slowdown.factor(63), 1);
  EXPECT_EQ(slowdown.factor(1), 1);
  for (int i = 0; i < 40; ++i) slowdown.add(1, 20, 18);
  EXPECT_NEAR(slowdown.factor(1), 0.9, 0.01);
  slowdown.add(1 << 20, 20, 30);
  EXPECT_GT(slowdown.factor(1 << 20), 1);
}

TEST(DraftSlowdown, ForgetsInStepsWithoutDrafts) {
  DraftSlowdown slowdown;
  for (int i = 0; i < 40; ++i) slowdown.add(64, 20, 40);
  for (int i = 0; i < 64; ++i) slowdown.rest(64);
  EXPECT_NEAR(slowdown.factor(64), 1.78, 0.02);
  for (int i = 0; i < 2000; ++i) slowdown.rest(64);
  EXPECT_NEAR(slowdown.factor(64), 1, 0.01);
}

TEST(DraftSlowdown, AStalledStepCountsNoMoreThanFourfold) {
  DraftSlowdown slowdown;
  slowdown.add(1, 10, 10000);
  EXPECT_NEAR(slowdown.factor(1), 1 + 3.0 / 8, 1e-9);
}

}  // namespace
}  // namespace tessera
