// Catches: percentiles that differ from numpy's; failed requests that are counted; a time per token that includes the
// first token; and throughput that is computed over a wrong span of time.
#include "tessera/load/latency.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Latency, PercentilesEqualNumpys) {
  // The expected values are numpy.percentile([4, 1, 3, 2, 10], [50, 90, 99]).
  const Distribution values = distribution({4, 1, 3, 2, 10});
  EXPECT_DOUBLE_EQ(values.mean, 4);
  EXPECT_DOUBLE_EQ(values.p50, 3);
  EXPECT_DOUBLE_EQ(values.p90, 7.6);
  EXPECT_NEAR(values.p99, 9.76, 1e-12);
  EXPECT_DOUBLE_EQ(distribution({5}).p99, 5);
  EXPECT_DOUBLE_EQ(distribution({}).p50, 0);
}

TEST(Latency, ComputesEveryMetric) {
  const std::vector<RequestRecord> records = {
      {.sent_s = 1, .first_token_s = 1.5, .end_s = 3.5, .gaps_s = {1, 1}, .input_tokens = 7, .output_tokens = 3},
      {.sent_s = 2, .first_token_s = 2.25, .end_s = 2.25, .input_tokens = 3, .output_tokens = 1},
      {.sent_s = 0, .failure = "429: full"},
      {.sent_s = 0, .failure = "429: full"}};
  const LoadResult result = load_result(records);
  EXPECT_EQ(result.completed, 2);
  EXPECT_EQ(result.failed, 2);
  EXPECT_EQ(result.failures.at("429: full"), 2);
  EXPECT_DOUBLE_EQ(result.seconds, 2.5);
  EXPECT_EQ(result.input_tokens, 10);
  EXPECT_EQ(result.output_tokens, 4);
  EXPECT_DOUBLE_EQ(result.ttft.mean, 375);
  EXPECT_DOUBLE_EQ(result.tpot.mean, 1000);
  EXPECT_DOUBLE_EQ(result.itl.p50, 1000);
  EXPECT_DOUBLE_EQ(result.e2e.mean, 1375);

  const Json json = to_json(result);
  EXPECT_DOUBLE_EQ(json.find("output_tokens_per_second")->as_double(), 1.6);
  EXPECT_EQ(*json.find("failures")->find("429: full"), Json(2));
  EXPECT_DOUBLE_EQ(json.find("e2e_ms")->find("mean")->as_double(), 1375);
}

TEST(Latency, IsZeroIfNothingSucceeded) {
  const std::vector<RequestRecord> records = {{.failure = "refused"}};
  const LoadResult result = load_result(records);
  EXPECT_EQ(result.completed, 0);
  EXPECT_DOUBLE_EQ(result.per_second(result.output_tokens), 0);
}

}  // namespace
}  // namespace tessera
