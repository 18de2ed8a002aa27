// Catches: a forward that passes a place where texts part without a checkpoint, a checkpoint that is not at a page's
// end, and forwards that are not needed.
#include "tessera/engine/schedule/prompt_cut.h"

#include <gtest/gtest.h>

#include <ostream>
#include <random>
#include <vector>

namespace tessera {

void PrintTo(const PromptCut& cut, std::ostream* out) { *out << "{" << cut.end << ", " << cut.checkpoint << "}"; }

namespace {

constexpr PromptPlaces kPrompt{.page_size = 16, .computed = 0, .tokens = 300};

PromptPlaces with_branches(const std::vector<std::int64_t>& tokens) {
  PromptPlaces prompt = kPrompt;
  prompt.branch_tokens = tokens;
  return prompt;
}

TEST(CutPrompt, WholePromptsLeaveACheckpointAtTheirLastPage) {
  EXPECT_EQ(cut_prompt(kPrompt, 300), (PromptCut{.end = 300, .checkpoint = 288}));
  PromptPlaces full = kPrompt;
  full.tokens = 288;
  EXPECT_EQ(cut_prompt(full, 288), (PromptCut{.end = 288, .checkpoint = 272})) << "a later text needs a token";
}

TEST(CutPrompt, PromptsShorterThanAPageLeaveNone) {
  PromptPlaces small = kPrompt;
  small.tokens = 16;
  EXPECT_EQ(cut_prompt(small, 16), (PromptCut{.end = 16}));
}

TEST(CutPrompt, ForwardsWithinAPromptEndAtAPage) {
  EXPECT_EQ(cut_prompt(kPrompt, 100), (PromptCut{.end = 96}));
  EXPECT_EQ(cut_prompt(kPrompt, 96), (PromptCut{.end = 96}));
  EXPECT_EQ(cut_prompt(kPrompt, 9), (PromptCut{.end = 9})) << "less than a page";
}

TEST(CutPrompt, OnePlaceWhereTextsPartNeedsNoForward) {
  const std::vector<std::int64_t> turn{250};
  EXPECT_EQ(cut_prompt(with_branches(turn), 300), (PromptCut{.end = 300, .checkpoint = 240}))
      << "the last page is near the turn";
  PromptPlaces parts = kPrompt;
  parts.branch = 128;
  EXPECT_EQ(cut_prompt(parts, 200), (PromptCut{.end = 192, .checkpoint = 128}));
}

TEST(CutPrompt, TwoPlacesNeedTwoForwards) {
  const std::vector<std::int64_t> messages{100, 250};
  PromptPlaces prompt = with_branches(messages);
  EXPECT_EQ(cut_prompt(prompt, 300), (PromptCut{.end = 240, .checkpoint = 96}));
  prompt.computed = 240;
  EXPECT_EQ(cut_prompt(prompt, 60), (PromptCut{.end = 300}));
}

TEST(CutPrompt, PlacesNearTheComputedTokensAreSkipped) {
  const std::vector<std::int64_t> near{40};
  EXPECT_EQ(cut_prompt(with_branches(near), 300), (PromptCut{.end = 300, .checkpoint = 288}));
}

TEST(CutPrompt, EveryForwardComputesATokenAndKeepsTheRules) {
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  for (int run = 0; run < 2000; ++run) {
    std::vector<std::int64_t> branches;
    for (std::int64_t n = draw(3); n > 0; --n) branches.push_back(draw(399));
    PromptPlaces prompt{.page_size = std::int64_t{1} << draw(6),
                        .computed = 0,
                        .tokens = 1 + draw(400),
                        .branch = 0,
                        .branch_tokens = branches};
    if (draw(1) == 0) prompt.branch = draw(prompt.tokens - 1) / prompt.page_size * prompt.page_size;
    while (prompt.computed < prompt.tokens) {
      const std::int64_t count = 1 + draw(prompt.tokens - prompt.computed - 1);
      const PromptCut cut = cut_prompt(prompt, count);
      ASSERT_GT(cut.end, prompt.computed);
      ASSERT_LE(cut.end, prompt.computed + count);
      if (cut.checkpoint != 0) {
        ASSERT_GT(cut.checkpoint, prompt.computed);
        ASSERT_LT(cut.checkpoint, cut.end);
        ASSERT_EQ(cut.checkpoint % prompt.page_size, 0);
      }
      if (branches.empty() && prompt.branch > prompt.computed && prompt.branch < cut.end) {
        ASSERT_TRUE(cut.checkpoint > 0 && cut.checkpoint <= prompt.branch);
      }
      prompt.computed = cut.end;
    }
  }
}

}  // namespace
}  // namespace tessera
