// Catches: a decode with drafts that runs in pieces although a decode graph has enough rows for it; drafts whose rows
// attend to other tokens in a decode graph than in a prefill; and decode graphs that cannot be cut into pieces.
#include <gtest/gtest.h>

#include "tessera/runner/runner_test_util.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::greatest_difference;
using testing::ids;
using testing::make_captured;
using testing::RunnerBench;
using testing::small_options;
using testing::TestRequest;

// Returns three requests, each with one new token.
std::vector<TestRequest> last_tokens() { return {{ids(9, 2), 8}, {ids(5, 3), 4}, {ids(17, 4), 16}}; }
const std::vector<TestRequest> kThreePrompts = {{ids(9, 2)}, {ids(5, 3)}, {ids(17, 4)}};

RunnerOptions with_drafts() {
  RunnerOptions options = small_options();
  options.decode_sizes = {1, 2, 4, 8};
  options.max_requests = 8;
  options.max_drafts = 3;
  options.num_pages = {8 * testing::kPagesPerRequest + 1};
  return options;
}

// Returns a batch of three requests: the first has two drafts, the second has none, and the third has one.
ForwardBatch draft_batch() {
  ForwardBatch batch = testing::make_batch({{ids(9, 2), 6}, {ids(5, 3), 4}, {ids(17, 4), 15}}, testing::Rows::kAll);
  batch.draft_lens = {2, 0, 1};
  return batch;
}

TEST(DecodeShapes, DraftsRunOnTheDecodeGraphOfTheirRows) {
  RunnerBench bench = make_captured("llama", with_drafts());
  bench.logits(kThreePrompts);  // fills the cache
  std::vector<float> graph;
  const Result<ForwardOutputs> outputs = bench.forward(draft_batch(), graph);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ(outputs->decision.runner, RunnerKind::kDecode);
  EXPECT_EQ(outputs->decision.size, 8);
  EXPECT_EQ(outputs->decision.padding, 2);
  std::vector<float> eager;
  ASSERT_TRUE(bench.forward(draft_batch(), eager, /*force_eager=*/true).ok());
  EXPECT_LE(greatest_difference(graph, eager), 1e-5);
}

TEST(DecodeShapes, RowsThatAreNotDraftsRunAsAPrefill) {
  RunnerBench bench = make_captured("llama", with_drafts());
  bench.logits(kThreePrompts);
  ForwardBatch batch = draft_batch();
  batch.draft_lens = {2, 0, 0};
  std::vector<float> logits;
  const Result<ForwardOutputs> outputs = bench.forward(batch, logits);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ(outputs->decision.runner, RunnerKind::kPrefill);
}

TEST(DecodeShapes, VerifyComparesDecodesWithDrafts) {
  for (const char* model : {"llama", "qwen3-moe", "qwen3-next"}) {
    RunnerBench bench = make_captured(model, with_drafts());
    const Result<VerifyReport> report = verify(*bench.runner, false);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    int with_drafts = 0;
    for (const VerifyRow& row : report->rows) {
      EXPECT_EQ(row.difference, "") << model << ", " << row.runner << " " << row.size;
      with_drafts += row.runner == "decode, drafts" ? 1 : 0;
    }
    EXPECT_EQ(with_drafts, 3) << "sizes 2, 4 and 8";
  }
}

TEST(DecodeShapes, ADecodeGraphMayBeCut) {
  RunnerOptions options = small_options();
  RunnerBench whole = make_captured("llama", options);
  options.decode_split_ops = {"attention"};
  RunnerBench cut = make_captured("llama", options);
  EXPECT_EQ(whole.runner->decode().executable().graph().num_pieces(), 1);
  EXPECT_GT(cut.runner->decode().executable().graph().num_split_ops(), 1);
  for (RunnerBench* bench : {&whole, &cut}) bench->logits(kThreePrompts);
  Decision decision;
  const std::vector<float> logits = cut.logits(last_tokens(), testing::Rows::kAll, false, &decision);
  EXPECT_EQ(decision.runner, RunnerKind::kDecode);
  EXPECT_EQ(logits, whole.logits(last_tokens()));
}

}  // namespace
}  // namespace tessera
