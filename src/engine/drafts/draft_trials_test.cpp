// Catches: requests that make drafts one after another although drafts never pay; trials that follow each other too
// fast or never come; and requests that make no drafts although drafts pay.
#include "tessera/engine/drafts/draft_trials.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using std::chrono::seconds;

class DraftTrialsTest : public ::testing::Test {
 protected:
  bool begin(int second) { return trials_.begin(start_ + seconds(second)); }
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

TEST_F(DraftTrialsTest, RequestsThatBeganBeforeCountToo) {
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(begin(0));
  for (int i = 0; i < 64; ++i) end(false, 0);
  EXPECT_FALSE(begin(31));
}

}  // namespace
}  // namespace tessera
