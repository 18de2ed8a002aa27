// Catches: a failed process that never ends, exits with success, or does not report the error.
#include "tessera/cli/serve/end_within.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "tessera/cli/output.h"

namespace tessera::cli {
namespace {

TEST(EndWithinDeathTest, AHangingProcessEndsWithTheError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    end_within(std::chrono::milliseconds(50), device_lost("rank 1 hangs"));
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(1), "tessera: error: rank 1 hangs");
}

TEST(EndWithinDeathTest, AnErrorIsNotWrittenTwice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    end_within(std::chrono::milliseconds(50), device_lost("rank 1 hangs"));
    write_last_error("rank 1 hangs, as --flags say it");
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(1), "^tessera: error: rank 1 hangs, as --flags say it\n$");
}

TEST(EndWithinDeathTest, AnEndInTimeIsNotDisturbed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    end_within(std::chrono::minutes(5), device_lost("rank 1 hangs"));
    std::exit(3);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(3), "^$");
}

}  // namespace
}  // namespace tessera::cli
