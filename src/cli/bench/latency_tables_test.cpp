// Catches: a value in the wrong column or under the wrong heading.
#include "tessera/cli/bench/latency_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

TEST(LatencyTables, EachFigureIsUnderItsName) {
  const LoadResult result{.completed = 4,
                          .failed = 1,
                          .seconds = 2,
                          .input_tokens = 60,
                          .output_tokens = 10,
                          .ttft = {.mean = 1, .p50 = 2, .p90 = 3, .p99 = 4},
                          .e2e = {.mean = 1375, .p50 = 1400, .p90 = 1500, .p99 = 1600}};
  const std::vector<LabelledResult> runs = {{.label = "2/s", .result = result}};
  EXPECT_THAT(latency_table(runs), HasSubstr("TTFT        2/s   1.00   2.00   3.00   4.00"));
  EXPECT_THAT(latency_table(runs), HasSubstr("end to end  2/s  1,375  1,400  1,500  1,600"));
  EXPECT_THAT(throughput_table(runs),
              HasSubstr("2/s     4       1     2.00        2.00            30.0             5.00"));
}

TEST(LatencyTables, DraftsAreShownWhereThereWereSome) {
  std::vector<LabelledResult> runs = {{.label = "2/s", .result = {}, .drafts = ServedDrafts{}},
                                      {.label = "4/s", .result = {}}};
  EXPECT_EQ(drafts_table(runs), "");
  runs[0].drafts = {.steps = 40, .drafted = 100, .kept = 60, .drafted_at = {40, 36, 24}, .kept_at = {36, 18, 6}};
  EXPECT_THAT(drafts_table(runs), HasSubstr("2/s                 40     100    60           2.50  90 50 25"));
}

TEST(LatencyTables, AgentsShowHitsAndTimesByPromptLength) {
  std::vector<LabelledResult> runs = {{.label = "2/s", .result = {.input_tokens = 2000, .cached_tokens = 1800}}};
  EXPECT_EQ(agents_tables(runs), "");
  runs[0].known_tokens = 1875;
  runs[0].latencies = {{.least_tokens = 500,
                        .end_tokens = 1000,
                        .requests = 7,
                        .new_tokens = 31,
                        .ttft = {.mean = 1, .p50 = 2, .p90 = 3, .p99 = 4}}};
  EXPECT_THAT(agents_tables(runs), HasSubstr("2/s         2,000                  1,800       90.0"));
  EXPECT_THAT(agents_tables(runs), HasSubstr("96.0\n"));
  EXPECT_THAT(agents_tables(runs), HasSubstr("2/s  500 to 999            7              31.0"));
  EXPECT_THAT(agents_tables(runs), HasSubstr("1.00  2.00  3.00  4.00"));
  runs[0].result.cached_tokens.reset();
  EXPECT_THAT(agents_tables(runs), HasSubstr("not reported"));
}

}  // namespace
}  // namespace tessera::cli
