// Catches: reasoning that goes on after its budget is used; a closing mark that is forced although the model has ended
// its reasoning, or into a text without reasoning; and a step that is scheduled before it is known whether its token is
// forced.
#include "tessera/engine/schedule/reasoning_budget.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

constexpr TokenId kWord(1);
const ReasoningLimit kThink{
    .tokens = 3, .opening = "<think>", .closing = "</think>", .closing_ids = {TokenId(7), TokenId(8)}};

ReasoningLimit opened() {
  ReasoningLimit limit = kThink;
  limit.opened = true;
  return limit;
}

// Follows words of reasoning until the budget is used.
void use_up(ReasoningBudget& budget) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(budget.forced()) << i;
    EXPECT_EQ(budget.left(), 3 - i);
    budget.follow(kWord, "so ");
  }
  EXPECT_EQ(budget.left(), 0);
}

TEST(ReasoningBudget, ForcesTheClosingTokensOnce) {
  ReasoningBudget budget(opened());
  use_up(budget);
  EXPECT_EQ(budget.forced(), TokenId(7));
  budget.follow(TokenId(7), "</th");
  EXPECT_EQ(budget.forced(), TokenId(8));
  budget.follow(TokenId(8), "ink>");
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(budget.forced());
    budget.follow(kWord, "answer ");
  }
}

TEST(ReasoningBudget, AClosedReasoningIsNotClosedAgain) {
  ReasoningBudget budget(opened());
  budget.follow(kWord, "so </thi");
  budget.follow(kWord, "nk>It");
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(budget.forced());
    EXPECT_FALSE(budget.waits(2));
    budget.follow(kWord, " is 2.");
  }
}

TEST(ReasoningBudget, ASpecialTokenEndsTheReasoningWithoutText) {
  ReasoningLimit limit = opened();
  limit.closing_ids = {TokenId(9)};
  ReasoningBudget budget(limit);
  budget.follow(TokenId(9), "");
  for (int i = 0; i < 5; ++i) budget.follow(kWord, "a");
  EXPECT_FALSE(budget.forced());
}

TEST(ReasoningBudget, CountsFromTheOpeningMark) {
  ReasoningBudget budget(kThink);
  budget.follow(kWord, "\n<th");
  budget.follow(kWord, "ink>");
  use_up(budget);
  EXPECT_EQ(budget.forced(), TokenId(7));
}

TEST(ReasoningBudget, ATextWithoutReasoningIsFree) {
  ReasoningBudget budget(kThink);
  for (const char* text : {" ", "It <think>", "is", " 2", ".", "."}) {
    EXPECT_FALSE(budget.forced()) << text;
    budget.follow(kWord, text);
  }
  EXPECT_FALSE(budget.forced());
}

TEST(ReasoningBudget, PiecesShareTheBudgetIfTheyRepeat) {
  ReasoningBudget budget({.tokens = 3,
                          .repeats = true,
                          .opening = "<|channel|>analysis<|message|>",
                          .closing = "<|end|>",
                          .closing_ids = {TokenId(9)}});
  budget.follow(kWord, "<|channel|>analysis<|message|>");
  budget.follow(kWord, "one");
  budget.follow(TokenId(9), "<|end|>");
  budget.follow(kWord, "<|start|>assistant<|channel|>analysis<|message|>");
  EXPECT_FALSE(budget.forced());
  budget.follow(kWord, "two");
  EXPECT_EQ(budget.forced(), TokenId(9));
  budget.follow(TokenId(9), "<|end|>");
  budget.follow(kWord, "<|start|>assistant<|channel|>final<|message|>");
  EXPECT_FALSE(budget.forced());
  EXPECT_FALSE(budget.waits(1));
  budget.follow(kWord, "<|start|>assistant<|channel|>");
  EXPECT_TRUE(budget.waits(1)) << "the pending token may complete the opening mark";
  EXPECT_EQ(budget.left(), 1);
  budget.follow(kWord, "analysis<|message|>");
  EXPECT_EQ(budget.forced(), TokenId(9)) << "the budget is used";
}

TEST(ReasoningBudget, WaitsForPendingTokensNearTheEnd) {
  ReasoningBudget budget(opened());
  EXPECT_FALSE(budget.waits(2));
  EXPECT_TRUE(budget.waits(3));
  budget.follow(kWord, "so ");
  EXPECT_FALSE(budget.waits(1));
  EXPECT_TRUE(budget.waits(2));
  budget.follow(kWord, "so ");
  budget.follow(kWord, "so ");
  EXPECT_FALSE(budget.waits(0));
  EXPECT_TRUE(budget.waits(1)) << "two closing tokens follow each other";
}

}  // namespace
}  // namespace tessera
