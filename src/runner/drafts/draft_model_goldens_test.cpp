// Catches: a draft model whose results beside a target differ from its results alone, because it uses wrong positions,
// the keys and values of another layer or token, or the target's weights.
#include <gtest/gtest.h>

#include "tessera/runner/drafts/draft_test_util.h"
#include "tessera/runner/verify/verify.h"

#include "../../../tests/golden.h"

namespace tessera {
namespace {

using testing::count_up;
using testing::draft;
using testing::Drafts;
using testing::forward;
using testing::Golden;
using testing::kTolerance;
using testing::long_options;
using testing::make_draft_bench;
using testing::name_of;
using testing::numbers;
using testing::Rows;
using testing::RunnerBench;

// A draft model that runs beside a target model computes the same logits as Hugging Face computes for the draft model
// alone.
class ModelGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  static RunnerBench make(const char* target) {
    const std::string folder = testing::golden_path(target);
    const Result<DraftModel> draft = read_draft_model(
        testing::golden_path(GetParam()), *ModelConfig::read(folder, built_in_families()), built_in_families(), true);
    EXPECT_TRUE(draft.ok()) << draft.status().to_string();
    return make_draft_bench(folder, {.draft_model = std::make_shared<const DraftModel>(*draft)}, long_options());
  }
  Golden golden = testing::read_golden(GetParam());
};

TEST_P(ModelGoldens, LogitsOfAPromptInParts) {
  for (const char* target : {"llama", "gemma3", "qwen3-vl"}) {
    RunnerBench bench = make(target);
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      const std::vector<std::int32_t> ids = numbers(golden.prompts[i]);
      // The golden has the logits of a prompt's last rows. The second part has two rows, so both parts have such rows.
      const std::int64_t half = std::max<std::int64_t>(std::ssize(ids) - 2, 0);
      std::vector<float> logits;
      forward(bench, {{.ids = ids}});
      if (half > 0)
        logits = draft(bench, {{.ids = {ids.begin(), ids.begin() + half}}}, Rows::kAll, count_up(half)).logits;
      forward(bench, {{.ids = ids}});
      const Drafts rest = draft(bench, {{.ids = ids, .computed = half}}, Rows::kAll, count_up(std::ssize(ids) - half));
      logits.insert(logits.end(), rest.logits.begin(), rest.logits.end());
      EXPECT_LT(testing::distance(logits, golden.stored_rows(i)).absolute, kTolerance) << target << ", prompt " << i;
    }
  }
}

TEST_P(ModelGoldens, DraftsAreItsOwnGreedyTokens) {
  RunnerBench bench = make("llama");
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    std::vector<std::int32_t> ids = numbers(golden.prompts[i]);
    forward(bench, {{.ids = ids}});
    Drafts step = draft(bench, {{.ids = ids}}, Rows::kLast, count_up(std::ssize(ids)));
    std::vector<TokenId> tokens = step.tokens;
    while (tokens.size() < golden.greedy[i].size()) {
      ids.push_back(tokens.back().value());
      step = draft(bench, {{.ids = ids, .computed = std::ssize(ids) - 1}}, Rows::kLast, {0});
      tokens.push_back(step.tokens[0]);
    }
    EXPECT_EQ(tokens, golden.greedy[i]) << "prompt " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Standalone, ModelGoldens,
                         ::testing::Values("llama", "llama-bias", "llama3-rope-tied", "llama-yarn", "qwen2", "qwen3",
                                           "olmo2", "phi3"),
                         name_of);

TEST(ModelDraftVerify, GraphsEqualTheirIsolatedRuns) {
  const std::string folder = testing::golden_path("llama");
  const Result<DraftModel> draft = read_draft_model(
      testing::golden_path("qwen3"), *ModelConfig::read(folder, built_in_families()), built_in_families(), true);
  ASSERT_TRUE(draft.ok()) << draft.status().to_string();
  RunnerBench bench =
      make_draft_bench(folder, {.draft_model = std::make_shared<const DraftModel>(*draft)}, long_options());
  ASSERT_TRUE(bench.runner->capture().ok());
  const Result<VerifyReport> report = verify(*bench.runner, false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (const VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
}

}  // namespace
}  // namespace tessera
