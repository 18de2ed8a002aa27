// Catches: code that assumes that each request of a decode adds one token, so that a query length of 2 is padded,
// captured, dispatched or read as if it were 1; and a decode graph that cannot be cut.
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

// Makes three requests, each with `tokens` new tokens.
std::vector<TestRequest> last_tokens(std::int64_t tokens) {
  return {{ids(9, 2), 9 - tokens}, {ids(5, 3), 5 - tokens}, {ids(17, 4), 17 - tokens}};
}
const std::vector<TestRequest> kThreePrompts = {{ids(9, 2)}, {ids(5, 3)}, {ids(17, 4)}};

RunnerOptions two_tokens_each() {
  RunnerOptions options = small_options();
  options.decode_query_length = 2;
  return options;
}

TEST(DecodeShapes, TwoTokensEachRunOnTheirDecodeGraph) {
  RunnerBench bench = make_captured("llama", two_tokens_each());
  ASSERT_EQ(bench.runner->decode().bucket(4).to_string(), "T=8 B=4 Q=2 R=8 P=33");
  bench.logits(kThreePrompts);  // fills the cache
  Decision decision;
  const std::vector<float> graph = bench.logits(last_tokens(2), testing::Rows::kAll, false, &decision);
  EXPECT_EQ(decision.runner, RunnerKind::kDecode);
  EXPECT_EQ(decision.size, 4);
  EXPECT_EQ(decision.padding, 2) << "one request of two rows";
  const std::vector<float> eager = bench.logits(last_tokens(2), testing::Rows::kAll, /*force_eager=*/true);
  EXPECT_LE(greatest_difference(graph, eager), 1e-5);
}

TEST(DecodeShapes, OtherBatchesTakeThePrefillRunner) {
  RunnerBench bench = make_captured("llama", two_tokens_each());
  bench.logits(kThreePrompts);
  Decision decision;
  bench.logits(last_tokens(1), testing::Rows::kAll, false, &decision);
  EXPECT_EQ(decision.runner, RunnerKind::kPrefill);
  // The batch has four tokens of two requests, but not two of each request.
  bench.logits({{ids(9, 2), 8}, {ids(5, 3), 2}}, testing::Rows::kAll, false, &decision);
  EXPECT_EQ(decision.runner, RunnerKind::kPrefill);
}

TEST(DecodeShapes, VerifyComparesDecodeGraphsOfTwoTokens) {
  RunnerBench bench = make_captured("llama", two_tokens_each());
  const Result<VerifyReport> report = verify(*bench.runner, false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (const VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
  EXPECT_TRUE(report->equal());
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
  const std::vector<float> logits = cut.logits(last_tokens(1), testing::Rows::kAll, false, &decision);
  EXPECT_EQ(decision.runner, RunnerKind::kDecode);
  EXPECT_EQ(logits, whole.logits(last_tokens(1)));
}

}  // namespace
}  // namespace tessera
