// Drafts are copied from an earlier occurrence of the text's last tokens, or come from the model's next-token layer.
// Catches: copied drafts that differ from the tokens after the earlier occurrence; more drafts than there is room for;
// copied drafts for a text without repetition; drafts by the layer for a text that repeats itself, where copying gives
// better drafts; and drafting that goes on although no draft is kept.
#include "tessera/engine/drafts/drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/engine/cache/prefix_cache_test_util.h"

namespace tessera {
namespace {

using test::token_ids;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> proposed_by(Drafter& drafter, const std::vector<TokenId>& text, std::int64_t room) {
  std::vector<TokenId> drafts;
  drafter.read(text, 8192);
  drafter.propose(text, std::min(drafter.offer(text).most, room), drafts);
  std::vector<int> values;
  for (const TokenId draft : drafts) values.push_back(draft.value());
  return values;
}

const std::vector<TokenId> kRepeats = token_ids({1, 2, 3, 4, 5, 6, 7, 1, 2, 3});

TEST(Drafter, ProposesWhatFollowedEarlier) {
  Drafter drafter(8);
  EXPECT_THAT(proposed_by(drafter, kRepeats, 8), ElementsAre(4, 5, 6, 7, 1, 2, 3, 4));
  EXPECT_THAT(proposed_by(drafter, kRepeats, 3), ElementsAre(4, 5, 6)) << "no more than there is room for";
  EXPECT_THAT(proposed_by(drafter, kRepeats, 0), IsEmpty());
}

TEST(Drafter, ContinuesAPeriodBeyondTheText) {
  Drafter drafter(8);
  EXPECT_THAT(proposed_by(drafter, token_ids({5, 6, 5, 6, 5, 6}), 8), ElementsAre(5, 6, 5, 6, 5, 6, 5, 6));
}

TEST(Drafter, ProposesNothingWithoutALongMatch) {
  Drafter drafter(8);
  EXPECT_THAT(proposed_by(drafter, token_ids({1, 2, 3, 4, 2, 3}), 8), IsEmpty());
  EXPECT_THAT(proposed_by(drafter, token_ids({1, 2, 3, 4, 2, 3, 9}), 8), IsEmpty());
}

TEST(Drafter, TheLayerDraftsUnlessTheTextRepeatsItself) {
  Drafter drafter(8, 3);
  std::vector<TokenId> text = kRepeats;
  drafter.read(text, 8192);
  EXPECT_FALSE(drafter.offer(text).by_layer) << "the layer has read nothing";
  drafter.set_layer_row(0);
  EXPECT_TRUE(drafter.offer(text).by_layer);
  EXPECT_EQ(drafter.offer(text).most, 3);
  for (const int next : {4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7, 1, 2}) text.emplace_back(next);
  drafter.read(text, 8192);
  EXPECT_FALSE(drafter.offer(text).by_layer);
  EXPECT_EQ(drafter.offer(text).most, 8);
}

TEST(Drafter, IsFruitlessAfterManyStepsWithoutAKeptDraft) {
  Drafter drafter(8, 3);
  drafter.set_layer_row(0);
  for (int step = 0; step < 60; ++step) drafter.rest();
  drafter.judge(3, 0);
  EXPECT_FALSE(drafter.is_fruitless());
  drafter.judge(3, 1);
  for (int step = 0; step < 63; ++step) drafter.rest();
  EXPECT_FALSE(drafter.is_fruitless()) << "one was kept";
  drafter.judge(3, 0);
  EXPECT_TRUE(drafter.is_fruitless());
}

TEST(Drafter, TellsTheTrialsWhetherItsDraftsPaid) {
  const auto trials = std::make_shared<DraftTrials>();
  const DraftTrials::Clock::time_point now = DraftTrials::Clock::now();
  const auto draft = [&](std::int64_t kept) {
    ASSERT_TRUE(trials->begin(now, {}));
    Drafter drafter(8, 0, trials);
    for (int step = 0; step < 20; ++step) drafter.judge(2, step == 3 ? kept : 0);
    EXPECT_EQ(drafter.paid(), kept == 2);
  };
  for (int request = 0; request < 9; ++request) draft(2);
  for (int request = 0; request < 4; ++request) draft(0);
  EXPECT_FALSE(trials->begin(now, {}));
  EXPECT_EQ(Drafter(8).paid(), std::nullopt);
}

TEST(Drafter, LackOfKeysIsNoEvidenceAgainstDrafts) {
  const auto trials = std::make_shared<DraftTrials>();
  const DraftTrials::Clock::time_point now = DraftTrials::Clock::now();
  for (int request = 0; request < 9; ++request) {
    ASSERT_TRUE(trials->begin(now, {}));
    Drafter drafter(0, 3, trials);
    drafter.set_lacks_keys(true);
    for (int step = 0; step < 20; ++step) drafter.judge(2, 0);
    EXPECT_EQ(drafter.paid(), std::nullopt);
  }
  Drafter drafter(0, 3);
  drafter.set_lacks_keys(true);
  for (int step = 0; step < 20; ++step) drafter.judge(2, 1);
  EXPECT_EQ(drafter.paid(), true) << "kept drafts are evidence all the same";
}

TEST(Drafter, RefusedDraftsLowerOtherRequestsOffers) {
  const auto trials = std::make_shared<DraftTrials>();
  const DraftTrials::Clock::time_point now = DraftTrials::Clock::now();
  const std::vector<TokenId> text = token_ids({1, 2, 3});
  ASSERT_TRUE(trials->begin(now, {}) && trials->begin(now, {}));
  Drafter refused(0, 3, trials);
  Drafter other(0, 3, trials);
  refused.set_layer_row(0);
  other.set_layer_row(1);
  EXPECT_EQ(other.offer(text).acceptance, 0.75);
  EXPECT_EQ(refused.offer(text).acceptance, 0.75);
  for (int step = 0; step < 8; ++step) refused.judge(1, 0);
  EXPECT_LT(other.offer(text).acceptance, 0.2);
  refused.set_lacks_keys(true);
  for (int step = 0; step < 99; ++step) refused.judge(1, 1);
  EXPECT_LT(other.offer(text).acceptance, 0.2) << "a request without keys is no evidence";
}

TEST(Drafter, ADismissedRequestIsNoEvidence) {
  const auto trials = std::make_shared<DraftTrials>();
  ASSERT_TRUE(trials->begin(DraftTrials::Clock::now(), {}));
  Drafter drafter(0, 3, trials);
  for (int step = 0; step < 99; ++step) drafter.judge(1, 1);
  EXPECT_EQ(drafter.paid(), true);
  drafter.dismiss();
  EXPECT_EQ(drafter.paid(), std::nullopt);
}

TEST(Drafter, StepsBehindTheTextAreNoRests) {
  Drafter drafter(0, 3);
  drafter.set_behind(true);
  for (int step = 0; step < 100; ++step) drafter.rest();
  EXPECT_FALSE(drafter.is_fruitless());
  drafter.set_behind(false);
  for (int step = 0; step < 64; ++step) drafter.rest();
  EXPECT_TRUE(drafter.is_fruitless());
}

TEST(Drafter, ReadsALongPromptOverSeveralCalls) {
  Drafter drafter(8);
  std::vector<TokenId> text;
  for (int i = 0; i < 10000; ++i) text.emplace_back(i);
  for (int i = 0; i < 5; ++i) text.emplace_back(i);
  EXPECT_THAT(proposed_by(drafter, text, 8), IsEmpty());
  EXPECT_THAT(proposed_by(drafter, text, 2), ElementsAre(5, 6));
}

}  // namespace
}  // namespace tessera
