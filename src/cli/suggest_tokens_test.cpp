// Catches: a damaged histogram of forwards, or a damaged trace of requests, that is accepted or misread; forwards that
// are counted at the wrong graph size; suggested graph sizes that serve fewer forwards than stated, waste more on
// padding than the present sizes, or cannot be pasted into a command.
#include "tessera/cli/suggest_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tessera/cli/serve/metrics_text.h"
#include "tessera/device/testing/environment.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kMetrics =
    "# HELP tessera:prefill_tokens Tokens of forwards.\n"
    "# TYPE tessera:prefill_tokens histogram\n"
    "tessera:prefill_tokens_bucket{model_name=\"le=1,\",le=\"8\"} 2\n"
    "tessera:prefill_tokens_bucket{model_name=\"le=1,\",le=\"300\"} 92\n"
    "tessera:prefill_tokens_bucket{model_name=\"le=1,\",le=\"1000\"} 100\n"
    "tessera:prefill_tokens_bucket{model_name=\"le=1,\",le=\"+Inf\"} 101\n"
    "tessera:prefill_tokens_sum{model_name=\"le=1,\"} 9999\n"
    "tessera:prefill_tokens_count{model_name=\"le=1,\"} 101\n"
    "tessera:prefill_tokens_bucket_of_another{le=\"1\"} nonsense\n";

TEST(ReadHistogram, CountsEachBucketSeparately) {
  const auto buckets = read_histogram(kMetrics, "tessera:prefill_tokens", "metrics");
  ASSERT_TRUE(buckets.ok()) << buckets.status().to_string();
  ASSERT_EQ(buckets->size(), 4u);
  EXPECT_EQ((*buckets)[0].limit, 8);
  EXPECT_EQ((*buckets)[0].count, 2);
  EXPECT_EQ((*buckets)[1].count, 90);
  EXPECT_EQ((*buckets)[2].count, 8);
  EXPECT_EQ((*buckets)[3].limit, std::numeric_limits<double>::infinity());
  EXPECT_EQ((*buckets)[3].count, 1);
}

TEST(ReadHistogram, AddsSeriesWithOtherLabels) {
  const auto buckets = read_histogram(
      "x_bucket{le=\"8\",rank=\"0\"} 1 1700000000\nx_bucket{le=\"+Inf\",rank=\"0\"} 4\r\n"
      "x_bucket{le=\"8\",rank=\"1\"} 2\nx_bucket{le=\"+Inf\",rank=\"1\"} 2.0e0",
      "x", "metrics");
  ASSERT_TRUE(buckets.ok()) << buckets.status().to_string();
  ASSERT_EQ(buckets->size(), 2u);
  EXPECT_EQ((*buckets)[0].count, 3);
  EXPECT_EQ((*buckets)[1].count, 3);
}

TEST(ReadHistogram, NamesTheWrongLine) {
  const struct {
    const char* text;
    const char* named;
  } cases[] = {
      {"x_bucket{le=\"8\"} 1\nx_bucket{le=\"16\"} many\n", "metrics:2: \"x_bucket{le=\"16\"} many\""},
      {"\nx_bucket{le=\"8\"}\n", "metrics:2: "},
      {"x_bucket{le=\"eight\"} 1\n", "metrics:1: "},
      {"x_bucket{rank=\"8\"} 1\n", "metrics:1: "},
      {"x_bucket{le=\"8\" 1\n", "metrics:1: "},
      {"x_bucket{le=\"8} 1\n", "metrics:1: "},
      {"x_bucket{le=\"8\"} -1\n", "metrics:1: "},
      {"x_bucket{le=\"8\"} nan\n", "metrics:1: "},
      {"x_bucket{le=\"8\"} +Inf\n", "metrics:1: "},
      {"x_bucket{le=\"8\"} 2\nx_bucket{le=\"16\"} 1\n", "metrics:2: \"x_bucket{le=\"16\"} 1\" comes after"},
      {"x_bucket{le=\"8\"} 2\nx_bucket{le=\"8\"} 3\n", "metrics:2: "},
      {"x_bucket{le=\"8\"} 2\nx_bucket{le=\"16\"} 3\n", "metrics: x_bucket ends before its bucket le=\"+Inf\""},
  };
  for (const auto& c : cases) {
    const Status status = read_histogram(c.text, "x", "metrics").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(status.message(), StartsWith(c.named));
  }
  EXPECT_THAT(read_histogram("y_bucket{le=\"8\"} 1\n", "x", "metrics").status().message(),
              HasSubstr("metrics has no metric x_bucket"));
  EXPECT_EQ(read_histogram("", "x", "metrics").status().code(), StatusCode::kNotFound);
}

class SuggestTokens : public ::testing::Test {
 protected:
  ~SuggestTokens() override { std::filesystem::remove(path_); }

  const std::string& with(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return path_;
  }
  static EngineOptions engine() { return {.model_path = testing::data_path("goldens/llama")}; }

  std::string path_ =
      ::testing::TempDir() + "suggest_tokens_test." + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(SuggestTokens, MetricsGiveTheirBuckets) {
  const auto s = suggest_tokens(with(kMetrics), engine());
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_EQ(s->forwards, 101);
  EXPECT_EQ(s->p50, 300);
  EXPECT_EQ(s->p90, 300);
  EXPECT_EQ(s->p99, 1000);
  EXPECT_EQ(s->present.waste.exact, 3.0 / 101) << "8 tokens, and the 2048 that the last is taken for";
  EXPECT_THAT(s->proposed.sizes, ElementsAre(300, 2048)) << "90 % of the forwards have a size of their own";
  EXPECT_EQ(s->proposed.waste.served, 1);
  EXPECT_THAT(to_text(*s), AllOf(HasSubstr("101 forwards"), HasSubstr("p90 300"),
                                 HasSubstr("\n--piecewise-cuda-graph-tokens 300,2048\n")));
  const Json json = to_json(*s);
  EXPECT_EQ(json.find("flag")->as_string(), "--piecewise-cuda-graph-tokens 300,2048");
  EXPECT_EQ(json.find("proposed")->find("sizes")->as_array().size(), 2u);
}

TEST_F(SuggestTokens, ATraceGivesItsSimulatedForwards) {
  std::string trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int i = 0; i < 200; ++i)
    trace += "2023-11-16 18:" + std::to_string(10 + i / 60) + ":" + std::to_string(10 + i % 50) + ".5," +
             std::to_string(i % 4 == 0 ? 1500 + i : 777) + ",3\n";
  const auto s = suggest_tokens(with(trace), engine());
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_THAT(s->proposed.sizes, Contains(777));
  EXPECT_EQ(s->proposed.sizes.back(), 2048) << "no forward is left without a graph";
  EXPECT_LE(s->proposed.sizes.size(), s->present.sizes.size());
  EXPECT_LT(s->proposed.waste.time, s->present.waste.time);
  EXPECT_GT(s->proposed.waste.exact, s->present.waste.exact);
  EXPECT_FALSE(s->costs_measured);
}

TEST_F(SuggestTokens, NamesTheFaultOfTheFile) {
  const struct {
    std::string content;
    const char* message;
  } cases[] = {
      {"", "has no lines"},
      {"hello\n", "begins with \"hello\""},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\n", "has no requests"},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,many,10\n", ":2: "},
      {"{\"timestamp\": 0}\n", ":1: "},
      {"# HELP other x\nother 1\n", "has no metric tessera:prefill_tokens_bucket"},
      {"# x\ntessera:prefill_tokens_bucket{le=\"8\"} x\n", ":2: "},
      {"# x\ntessera:prefill_tokens_bucket{le=\"+Inf\"} 0\n", "count no forward; accepted: metrics"},
      {"tessera:forwards_total{reason=\"exact_size\"} 3\n", "has no metric tessera:prefill_tokens_bucket"},
      {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 2}\n", "need no prefill of two tokens or more"},
  };
  for (const auto& c : cases) {
    const Status status = suggest_tokens(with(c.content), engine()).status();
    EXPECT_THAT(status.message(), AllOf(StartsWith("--suggest-tokens: "), HasSubstr(path_), HasSubstr(c.message)));
  }
  EXPECT_THAT(suggest_tokens("/no/such/trace", engine()).status().message(),
              AllOf(StartsWith("--suggest-tokens: "), HasSubstr("/no/such/trace")));
  EXPECT_THAT(suggest_tokens("/dev/zero", engine()).status().message(), HasSubstr("/dev/zero is not a regular file"));
}

}  // namespace
}  // namespace tessera::cli
