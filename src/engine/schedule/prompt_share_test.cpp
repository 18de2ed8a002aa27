// A prompt's share is the number of its tokens that a step may compute. Catches: a prompt that takes more than its
// share and so delays decodes; later prompts that lengthen a step without a gain; a long queue of prompts that is
// computed in small steps; and a blocked prompt whose share is not left to later prompts.
#include "tessera/engine/schedule/prompt_share.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

std::vector<std::int64_t> taken(PromptShare share, const std::vector<std::int64_t>& prompts) {
  std::vector<std::int64_t> out;
  for (const std::int64_t prompt : prompts) {
    out.push_back(share.most(prompt));
    share.take(out.back());
  }
  return out;
}

using Tokens = std::vector<std::int64_t>;

TEST(PromptShare, PromptsJoinUntilTheyFillTheDevice) {
  const PromptShare share(8192, /*filling=*/512, /*backlog=*/4000, /*decodes=*/false);
  EXPECT_EQ(taken(share, {100, 200, 212}), (Tokens{100, 200, 212}));
  EXPECT_EQ(taken(share, {100, 200, 400, 10}), (Tokens{100, 200, 212, 0})) << "the last one in part";
  EXPECT_EQ(taken(share, {1500, 10}), (Tokens{1500, 0})) << "the first one however long it is";
}

TEST(PromptShare, ALongPromptTakesAThirdBesideDecodes) {
  EXPECT_EQ(taken({8192, 512, 9000, false}, {9000}), (Tokens{8192}));
  EXPECT_EQ(taken({8192, 512, 9000, true}, {9000}), (Tokens{2730}));
  EXPECT_EQ(taken({1024, 512, 2000, true}, {2000}), (Tokens{512})) << "no less than fills the device";
  EXPECT_EQ(taken({256, 512, 300, true}, {300}), (Tokens{256})) << "no more than the chunk";
}

TEST(PromptShare, ADeepBacklogTakesWholeChunks) {
  EXPECT_EQ(taken({8192, 512, 16385, true}, {1500, 2000, 6000}), (Tokens{1500, 2000, 4692}));
  EXPECT_EQ(taken({8192, 512, 16384, true}, {1500, 2000, 6000}), (Tokens{1500, 0, 0}));
}

TEST(PromptShare, WithoutAKnownFillingStepsAreWholeChunks) {
  EXPECT_EQ(taken({2048, 0, 3000, true}, {1000, 2000}), (Tokens{1000, 1048}));
}

TEST(PromptShare, ABlockedPromptLeavesItsShareToLaterOnes) {
  PromptShare share(8192, 512, 4000, false);
  EXPECT_EQ(share.most(1500), 1500);
  share.take(0);
  EXPECT_EQ(share.most(2000), 2000);
  share.take(496);
  EXPECT_EQ(share.most(100), 16);
}

}  // namespace
}  // namespace tessera
