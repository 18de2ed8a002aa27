// Catches: many requests that draft one after another although drafts never pay; trials (single requests that draft
// after a pause) that follow each other too fast or never come; requests that make no drafts although drafts pay; a
// stop of all drafting that ends too early, or that ends too late although the load became lighter; and an estimate of
// the typical share of kept drafts that does not follow the drafts.
#include "tessera/engine/drafts/draft_trials.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using std::chrono::seconds;

class DraftTrialsTest : public ::testing::Test {
 protected:
  bool begin(int second, const DraftTrials::Load& load = {.running = 8}) {
    return trials_.begin(start_ + seconds(second), load);
  }
  void end(std::optional<bool> paid, int second) { trials_.end(paid, start_ + seconds(second)); }
  void draft_in_vain(int requests) {
    for (int i = 0; i < requests; ++i) EXPECT_TRUE(begin(0));
    for (int i = 0; i < requests; ++i) end(false, 0);
  }

  DraftTrials trials_;
  DraftTrials::Clock::time_point start_{};
};

TEST_F(DraftTrialsTest, AllRequestsDraftWhileItPays) {
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(begin(0));
  for (int i = 0; i < 100; ++i) end(i % 4 != 0, 1);
  EXPECT_TRUE(begin(1));
}

TEST_F(DraftTrialsTest, OneRequestTriesAfterAPauseThatGrows) {
  draft_in_vain(4);
  EXPECT_FALSE(begin(0));
  int now = 0;
  for (const int pause : {1, 2, 4, 8, 16, 32, 32}) {
    EXPECT_FALSE(begin(now + pause - 1)) << pause;
    now += pause;
    EXPECT_TRUE(begin(now)) << pause;
    EXPECT_FALSE(begin(now)) << "another tries";
    end(false, now);
  }
}

TEST_F(DraftTrialsTest, ATrialThatPaysLetsAllDraft) {
  draft_in_vain(5);
  ASSERT_TRUE(begin(9));
  end(true, 10);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(begin(10));
}

TEST_F(DraftTrialsTest, RequestsTooShortToTellChangeNothing) {
  draft_in_vain(3);
  ASSERT_TRUE(begin(0));
  end(std::nullopt, 0);
  EXPECT_TRUE(begin(0));
  end(false, 0);
  EXPECT_FALSE(begin(0));
}

TEST_F(DraftTrialsTest, ATrialTooShortToTellStartsAPause) {
  draft_in_vain(4);
  ASSERT_TRUE(begin(1));
  end(std::nullopt, 1);
  EXPECT_FALSE(begin(2));
  EXPECT_TRUE(begin(3));
}

TEST_F(DraftTrialsTest, AfterAStopAllDraftAgainOnceItEnds) {
  int now = 0;
  for (const int stop : {4, 8, 16, 32, 64, 128, 128}) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(begin(now, {.running = 256}));
    trials_.stop(start_ + seconds(now), 256);
    for (int i = 0; i < 3; ++i) end(std::nullopt, now);
    EXPECT_FALSE(begin(now + stop - 1, {.running = 256})) << stop;
    now += stop;
    EXPECT_FALSE(begin(now, {.running = 256, .waiting = 1})) << "a waiting request would hold up all steps";
  }
}

TEST_F(DraftTrialsTest, AStopEndsWithHalfTheRequests) {
  for (int i = 0; i < 3; ++i) trials_.stop(start_, 256);
  EXPECT_FALSE(begin(0, {.running = 127}));
  EXPECT_TRUE(begin(0, {.running = 126}));
  EXPECT_TRUE(begin(0, {.running = 256})) << "the stop has ended";
  trials_.stop(start_, 64);
  EXPECT_FALSE(begin(3, {.running = 64}));
  EXPECT_TRUE(begin(4, {.running = 64})) << "the next stop is short again";
}

TEST_F(DraftTrialsTest, OneRequestAfterAnotherWaitsForTheEnd) {
  trials_.stop(start_, 1);
  EXPECT_FALSE(begin(3, {}));
  EXPECT_TRUE(begin(4, {}));
  trials_.stop(start_, 0);
  EXPECT_FALSE(begin(0, {}));
}

TEST_F(DraftTrialsTest, RequestsInVainCountAcrossAStop) {
  draft_in_vain(4);
  trials_.stop(start_, 8);
  EXPECT_FALSE(begin(3));
  EXPECT_TRUE(begin(4));
  EXPECT_FALSE(begin(4)) << "another tries";
}

TEST_F(DraftTrialsTest, AcceptanceFollowsAllRequests) {
  EXPECT_EQ(trials_.acceptance(), 0.75);
  for (int i = 0; i < 8; ++i) trials_.judge(1, 0);
  EXPECT_LT(trials_.acceptance(), 0.2);
  for (int i = 0; i < 1000; ++i) trials_.judge(3, i % 4 == 0 ? 1 : 0);
  EXPECT_NEAR(trials_.acceptance(), 0.2, 0.02) << "one of five judged drafts is kept";
}

TEST_F(DraftTrialsTest, ATrialForgetsEarlierAcceptance) {
  trials_.judge(3, 3);
  draft_in_vain(4);
  for (int i = 0; i < 300; ++i) trials_.judge(3, 0);
  EXPECT_FALSE(begin(0));
  EXPECT_LT(trials_.acceptance(), 0.02);
  ASSERT_TRUE(begin(1));
  EXPECT_EQ(trials_.acceptance(), 0.75);
}

TEST_F(DraftTrialsTest, RequestsThatBeganBeforeCountToo) {
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(begin(0));
  for (int i = 0; i < 64; ++i) end(false, 0);
  EXPECT_FALSE(begin(31));
}

}  // namespace
}  // namespace tessera
