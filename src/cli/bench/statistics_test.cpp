// Catches: confidence intervals of medians that begin or end at the wrong rank of the sorted values; confidence
// intervals that are too narrow for the number of values; a median that is taken from unsorted values.
#include "tessera/cli/bench/statistics.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tessera::cli {
namespace {

// Returns the numbers n, …, 2, 1.
std::vector<double> numbers(int n) {
  std::vector<double> made(static_cast<std::size_t>(n));
  std::iota(made.rbegin(), made.rend(), 1.0);
  return made;
}

TEST(Statistics, TheMedianIsTheMiddleValue) {
  EXPECT_EQ(median({5}), 5);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 3);
}

// The expected ranks come from tables of the sign test.
TEST(Statistics, AMediansIntervalHasTheTabulatedRanks) {
  const struct {
    int n, low, high;
  } cases[] = {{1, 1, 1},  {5, 1, 5},   {6, 1, 6},    {8, 1, 8},    {9, 2, 8},
               {10, 2, 9}, {15, 4, 12}, {50, 18, 33}, {100, 40, 61}};
  for (const auto& c : cases) {
    const Interval interval = median_interval(numbers(c.n));
    EXPECT_EQ(interval.low, c.low) << c.n;
    EXPECT_EQ(interval.high, c.high) << c.n;
  }
}

TEST(Statistics, AMeansIntervalFollowsStudentsT) {
  // The mean is 3 and the standard deviation is 1.5811. With four degrees of freedom, the interval is 3 ± 2.776 ·
  // 0.7071.
  const Interval five = mean_interval(numbers(5));
  EXPECT_NEAR(five.low, 1.037, 1e-3);
  EXPECT_NEAR(five.high, 4.963, 1e-3);
  EXPECT_TRUE(five.holds(3));
  EXPECT_FALSE(five.holds(1));
  const std::vector<double> equal(7, 2.5);
  EXPECT_EQ(mean_interval(equal).low, 2.5);
  EXPECT_EQ(mean_interval(equal).high, 2.5);
  // With 99 degrees of freedom, t = 1.984.
  const std::vector<double> hundred = numbers(100);
  EXPECT_NEAR((mean_interval(hundred).high - mean(hundred)) / (29.0115 / 10), 1.984, 2e-3);
}

}  // namespace
}  // namespace tessera::cli
