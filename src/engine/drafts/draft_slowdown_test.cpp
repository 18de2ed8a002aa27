// The slowdown is the factor by which drafts make a decode step slower than predicted. Catches: a slowdown that is
// never learned or never forgotten; a slowdown that is learned for other numbers of requests too; a slowdown that
// includes what also slows steps without drafts; and a slowdown that includes the time between two decode steps.
#include "tessera/engine/drafts/draft_slowdown.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

class DraftSlowdownTest : public ::testing::Test {
 protected:
  using Step = DraftSlowdown::Step;

  // Runs `count` identical steps, each of which takes `ms`.
  void repeat(int count, const Step& step, double ms) {
    for (int i = 0; i < count; ++i) {
      slowdown_.begin(step, now_);
      wait(ms);
    }
    slowdown_.begin(step, now_);
    slowdown_.begin(std::nullopt, now_);
  }
  void wait(double ms) {
    now_ += std::chrono::duration_cast<DraftSlowdown::Clock::duration>(std::chrono::duration<double, std::milli>(ms));
  }

  DraftSlowdown slowdown_;
  DraftSlowdown::Clock::time_point now_{};
};

TEST_F(DraftSlowdownTest, LearnsTheRatioOfEachLoad) {
  EXPECT_EQ(slowdown_.factor(64), 1);
  repeat(40, {.requests = 70, .predicted_ms = 20, .has_drafts = true}, 30);
  EXPECT_NEAR(slowdown_.factor(64), 1.5, 0.01) << "64 to 127 requests";
  EXPECT_EQ(slowdown_.factor(63), 1);
  EXPECT_EQ(slowdown_.factor(1), 1);
  repeat(40, {.requests = 1, .predicted_ms = 20, .has_drafts = true}, 18);
  EXPECT_NEAR(slowdown_.factor(1), 0.9, 0.01);
  repeat(1, {.requests = 1 << 20, .predicted_ms = 20, .has_drafts = true}, 30);
  EXPECT_GT(slowdown_.factor(1 << 20), 1);
}

// Long contexts slow steps with drafts and steps without drafts by the same factor.
TEST_F(DraftSlowdownTest, WhatSlowsAllStepsDoesNotCount) {
  repeat(40, {.requests = 16, .predicted_ms = 9, .has_drafts = false}, 18);
  repeat(40, {.requests = 16, .predicted_ms = 13, .has_drafts = true}, 26);
  EXPECT_NEAR(slowdown_.factor(16), 1, 0.02);
}

TEST_F(DraftSlowdownTest, ForgetsInStepsWithoutDrafts) {
  repeat(40, {.requests = 64, .predicted_ms = 20, .has_drafts = true}, 40);
  repeat(64, {.requests = 64, .predicted_ms = 20, .has_drafts = false}, 20);
  EXPECT_NEAR(slowdown_.factor(64), 1.78, 0.02);
  repeat(2000, {.requests = 64, .predicted_ms = 20, .has_drafts = false}, 20);
  EXPECT_NEAR(slowdown_.factor(64), 1, 0.01);
}

TEST_F(DraftSlowdownTest, AStalledStepCountsNoMoreThanFourfold) {
  repeat(1, {.requests = 1, .predicted_ms = 10, .has_drafts = true}, 10000);
  EXPECT_NEAR(slowdown_.factor(1), 1 + 3.0 / 8, 1e-9);
}

TEST_F(DraftSlowdownTest, PromptsPausesAndUnknownCostsDoNotCount) {
  const Step drafted{.requests = 1, .predicted_ms = 10, .has_drafts = true};
  for (int i = 0; i < 10; ++i) {
    slowdown_.begin(drafted, now_);
    wait(500);
    slowdown_.begin(std::nullopt, now_);
    wait(500);
  }
  repeat(10, {.requests = 1, .predicted_ms = 0, .has_drafts = true}, 500);
  EXPECT_EQ(slowdown_.factor(1), 1);
}

}  // namespace
}  // namespace tessera
