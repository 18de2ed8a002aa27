// Catches: penalties for tokens that did not occur, were counted wrong or are penalised twice; a bias that is lost
// beside a penalty; end tokens that are forbidden too long or not at all; and bad words that are forbidden too early,
// too late or forever.
#include "tessera/engine/schedule/token_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Returns a row's edits: (penalty, offset) by token.
std::map<int, std::pair<float, float>> row(const TokenEdits& edits, std::int64_t generated) {
  LogitEdits out;
  edits.append(generated, out);
  std::map<int, std::pair<float, float>> made;
  for (std::size_t i = 0; i < out.ids.size(); ++i)
    EXPECT_TRUE(made.emplace(out.ids[i].value(), std::pair(out.penalties[i], out.offsets[i])).second) << "twice";
  EXPECT_EQ(edits.any(generated), !made.empty());
  return made;
}

Request asked(SamplingParams sampling) {
  return {.prompt = {TokenId(1), TokenId(2), TokenId(1)}, .sampling = sampling};
}

TEST(TokenEdits, RepetitionCountsPromptAndOutput) {
  TokenEdits edits(asked({.repetition_penalty = 2}), {});
  EXPECT_TRUE(edits.follow_text());
  EXPECT_THAT(row(edits, 0), UnorderedElementsAre(Pair(1, Pair(2, 0)), Pair(2, Pair(2, 0))));
  edits.count(TokenId(7));
  edits.count(TokenId(1));
  EXPECT_THAT(row(edits, 2), UnorderedElementsAre(Pair(1, Pair(2, 0)), Pair(2, Pair(2, 0)), Pair(7, Pair(2, 0))));
}

TEST(TokenEdits, ForbidsTheLastTokenAfterABadWordsBeginning) {
  TokenEdits edits(asked({.bad_words = {{TokenId(5)}, {TokenId(7), TokenId(8), TokenId(9)}, {TokenId(8), TokenId(6)}}}),
                   {});
  EXPECT_TRUE(edits.follow_text());
  EXPECT_THAT(row(edits, 0), UnorderedElementsAre(Pair(5, Pair(1, kNever))));
  EXPECT_TRUE(edits.forbids(TokenId(5), 0));
  EXPECT_FALSE(edits.forbids(TokenId(9), 0));
  edits.count(TokenId(7));
  EXPECT_THAT(row(edits, 1), UnorderedElementsAre(Pair(5, Pair(1, kNever))));
  edits.count(TokenId(8));
  EXPECT_THAT(row(edits, 2),
              UnorderedElementsAre(Pair(5, Pair(1, kNever)), Pair(6, Pair(1, kNever)), Pair(9, Pair(1, kNever))));
  EXPECT_TRUE(edits.forbids(TokenId(9), 2));
  edits.count(TokenId(8));
  EXPECT_THAT(row(edits, 3), UnorderedElementsAre(Pair(5, Pair(1, kNever)), Pair(6, Pair(1, kNever))));
}

TEST(TokenEdits, BadWordsOfOneTokenNeedNoText) {
  const TokenEdits edits(asked({.bad_words = {{TokenId(5)}}}), {});
  EXPECT_FALSE(edits.follow_text());
}

TEST(TokenEdits, FrequencyAndPresenceCountTheOutputAlone) {
  TokenEdits edits(asked({.frequency_penalty = 0.5, .presence_penalty = 0.25}), {});
  EXPECT_THAT(row(edits, 0), IsEmpty());
  for (const int token : {7, 7, 1}) edits.count(TokenId(token));
  EXPECT_THAT(row(edits, 3), UnorderedElementsAre(Pair(7, Pair(1, -1.25F)), Pair(1, Pair(1, -0.75F))));
}

TEST(TokenEdits, ABiasIsAddedToPenalties) {
  TokenEdits edits(asked({.presence_penalty = 1, .logit_bias = {{TokenId(7), 5.0F}, {TokenId(9), -100.0F}}}), {});
  edits.count(TokenId(7));
  EXPECT_THAT(row(edits, 1), UnorderedElementsAre(Pair(7, Pair(1, 4)), Pair(9, Pair(1, -100))));
}

TEST(TokenEdits, ABiasAloneNeedsNoText) {
  const TokenEdits edits(asked({.logit_bias = {{TokenId(7), 5.0F}}}), {});
  EXPECT_FALSE(edits.follow_text());
  EXPECT_THAT(row(edits, 0), ElementsAre(Pair(7, Pair(1, 5))));
  EXPECT_THAT(row(edits, 30), ElementsAre(Pair(7, Pair(1, 5))));
}

TEST(TokenEdits, ForbidsEndTokensUntilTheLeastLength) {
  Request request = asked({});
  request.stop.min_new_tokens = 2;
  const std::vector<TokenId> ends = {TokenId(3), TokenId(4)};
  const TokenEdits edits(request, ends);
  EXPECT_FALSE(edits.follow_text());
  EXPECT_THAT(row(edits, 1), UnorderedElementsAre(Pair(3, Pair(1, kNever)), Pair(4, Pair(1, kNever))));
  EXPECT_THAT(row(edits, 2), IsEmpty());
}

}  // namespace
}  // namespace tessera
