// Catches: drafts that are not what followed earlier, more drafts than there is room for, drafts although nothing
// repeats, and a drafter that goes on at full length although no draft is kept.
#include "tessera/engine/drafts/drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenId> text_of(std::initializer_list<int> values) {
  std::vector<TokenId> all;
  for (const int value : values) all.emplace_back(value);
  return all;
}

std::vector<int> proposed_by(Drafter& drafter, const std::vector<TokenId>& text, std::int64_t room) {
  std::vector<TokenId> drafts;
  drafter.read(text, 8192);
  drafter.propose(text, room, drafts);
  std::vector<int> values;
  for (const TokenId draft : drafts) values.push_back(draft.value());
  return values;
}

const std::vector<TokenId> kRepeats = text_of({1, 2, 3, 4, 5, 6, 7, 1, 2, 3});

TEST(Drafter, ProposesWhatFollowedEarlier) {
  Drafter drafter(8);
  EXPECT_THAT(proposed_by(drafter, kRepeats, 8), ElementsAre(4, 5)) << "two at first";
  drafter.judge(2, 2);
  EXPECT_THAT(proposed_by(drafter, kRepeats, 8), ElementsAre(4, 5, 6, 7));
  drafter.judge(4, 4);
  EXPECT_THAT(proposed_by(drafter, kRepeats, 3), ElementsAre(4, 5, 6)) << "no more than there is room for";
  EXPECT_THAT(proposed_by(drafter, kRepeats, 0), IsEmpty());
}

TEST(Drafter, ContinuesAPeriodBeyondTheText) {
  Drafter drafter(8);
  drafter.judge(2, 2);
  drafter.judge(4, 4);
  drafter.judge(1, 1);  // room for one draft says nothing about more
  EXPECT_THAT(proposed_by(drafter, text_of({5, 6, 5, 6, 5, 6}), 8), ElementsAre(5, 6, 5, 6, 5, 6, 5, 6));
}

TEST(Drafter, ProposesNothingWithoutALongMatch) {
  Drafter drafter(8);
  EXPECT_THAT(proposed_by(drafter, text_of({1, 2, 3, 4, 2, 3}), 8), IsEmpty());
  EXPECT_THAT(proposed_by(drafter, text_of({1, 2, 3, 4, 2, 3, 9}), 8), IsEmpty());
}

TEST(Drafter, PausesLongerAfterEachMiss) {
  Drafter drafter(8);
  for (const int pause : {1, 2, 4, 8, 16, 32, 32}) {
    drafter.judge(1, 0);
    for (int i = 0; i < pause; ++i) EXPECT_THAT(proposed_by(drafter, kRepeats, 8), IsEmpty()) << i << " of " << pause;
    EXPECT_THAT(proposed_by(drafter, kRepeats, 8), ElementsAre(4)) << "after " << pause;
  }
  drafter.judge(1, 1);
  EXPECT_THAT(proposed_by(drafter, kRepeats, 8), ElementsAre(4, 5));
  drafter.judge(2, 0);
  EXPECT_THAT(proposed_by(drafter, kRepeats, 8), IsEmpty());
  EXPECT_THAT(proposed_by(drafter, kRepeats, 8), ElementsAre(4)) << "the pause is short again";
}

TEST(Drafter, ReadsALongPromptOverSeveralCalls) {
  Drafter drafter(8);
  std::vector<TokenId> text;
  for (int i = 0; i < 10000; ++i) text.emplace_back(i);
  for (int i = 0; i < 5; ++i) text.emplace_back(i);
  EXPECT_THAT(proposed_by(drafter, text, 8), IsEmpty());
  EXPECT_THAT(proposed_by(drafter, text, 8), ElementsAre(5, 6));
}

}  // namespace
}  // namespace tessera
