// Catches: a run that is paired with a run at another rate; a difference with the wrong sign; a verdict that the
// confidence interval does not support.
#include "tessera/cli/bench/serve_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Runs {
 public:
  void add(const std::string& rate, bool graphs, double p50, double p99) {
    LoadResult& result = results_.emplace_back();
    result.ttft.p50 = p50;
    result.ttft.p99 = p99;
    runs_.push_back({.rate = rate, .graphs = graphs, .result = &result});
  }
  std::vector<RateComparison> compare() const { return compare_graphs(runs_); }

 private:
  std::deque<LoadResult> results_;
  std::vector<GraphsRun> runs_;
};

TEST(ServeComparison, PairsRunsOfOneRateInOrder) {
  Runs runs;
  for (const double drift : {0.0, 10.0, 20.0}) {  // both kinds of runs slow down equally
    runs.add("4/s", false, 50 + drift, 200);
    runs.add("all at once", false, 5, 9);
    runs.add("4/s", true, 40 + drift, 200 + (drift == 10 ? 3 : -1));
    runs.add("all at once", true, 8, 9);
  }
  const std::vector<RateComparison> made = runs.compare();
  ASSERT_THAT(made, SizeIs(2));
  EXPECT_EQ(made[0].rate, "4/s");
  EXPECT_EQ(made[0].pairs, 3u);
  ASSERT_THAT(made[0].differences, SizeIs(2));
  EXPECT_EQ(made[0].differences[0].name, "ttft_p50_ms");
  EXPECT_EQ(made[0].differences[0].without, 60);
  EXPECT_EQ(made[0].differences[0].with, 50);
  EXPECT_EQ(made[0].differences[0].difference.low, -10) << "the drift is not part of it";
  EXPECT_EQ(made[0].differences[0].difference.high, -10);
  EXPECT_TRUE(made[0].differences[1].difference.holds(0));
  EXPECT_EQ(made[1].differences[0].difference.low, 3);
  const std::string text = to_text(made);
  EXPECT_THAT(text, HasSubstr("faster"));
  EXPECT_THAT(text, HasSubstr("slower"));
  EXPECT_THAT(text, HasSubstr("none to tell"));
  EXPECT_THAT(to_json(made).dump(), HasSubstr(R"("rate": "4/s", "pairs": 3, "ttft_p50_ms": {"eager": 60)"));
}

TEST(ServeComparison, OnePairGivesNoComparison) {
  Runs runs;
  runs.add("4/s", false, 50, 200);
  runs.add("4/s", true, 40, 200);
  runs.add("4/s", false, 50, 200);
  EXPECT_THAT(runs.compare(), IsEmpty());
  EXPECT_EQ(to_text(runs.compare()), "");
}

}  // namespace
}  // namespace tessera::cli
