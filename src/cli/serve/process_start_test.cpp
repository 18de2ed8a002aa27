// Catches: a start time that is read from the wrong field, and a timeline without the phase that begins at the
// process's start.
#include "tessera/cli/serve/process_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(ProcessStart, IsField22ForAnyProcessName) {
  const std::string rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21";
  EXPECT_EQ(*start_ticks("42 (tessera)" + rest), 987654);
  EXPECT_EQ(*start_ticks("42 (a (b) c d)" + rest), 987654);
  for (const std::string& stat : {std::string(), std::string("42 (tessera"), "42 (tessera)" + rest.substr(0, 40),
                                  std::string("42 (t) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x")})
    EXPECT_THAT(start_ticks(stat).status().message(), ::testing::HasSubstr("field 22")) << stat;
}

TEST(ProcessStart, IsBeforeNowAndConstant) {
  const Timeline::Clock::time_point first = process_start();
  EXPECT_LT(first, Timeline::Clock::now());
  EXPECT_GT(first, Timeline::Clock::now() - std::chrono::hours(1));
  const std::chrono::duration<double> apart = process_start() - first;
  EXPECT_NEAR(apart.count(), 0, 0.001);
}

TEST(ProcessStart, IsRecordedForCommandsWithAnEngine) {
  const Timeline::Clock::time_point began = Timeline::Clock::now();
  Command generate = GenerateOptions{};
  record_start(generate, began);
  const std::optional<Timeline>& start = std::get<GenerateOptions>(generate).engine.start;
  ASSERT_TRUE(start);
  ASSERT_EQ(start->phases().size(), 2U);
  EXPECT_EQ(start->phases()[0].name, "process");
  EXPECT_EQ(start->phases()[0].begin_s, 0);
  EXPECT_EQ(start->phases()[1].name, "options");
  EXPECT_EQ(start->phases()[1].begin_s, start->phases()[0].end_s);
  EXPECT_EQ(start->uncovered_s(), 0);
  Command pull = PullCommandOptions{};
  record_start(pull, began);
}

}  // namespace
}  // namespace tessera::cli
