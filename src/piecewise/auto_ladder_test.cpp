// Catches: a ladder without sizes in a range in which padding costs much time; a ladder that keeps sizes that save
// nothing, grows without end or loses the largest size; and a computed padding waste that counts the wrong forwards.
#include "tessera/piecewise/auto_ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Sizes = std::vector<std::int64_t>;

double linear(std::int64_t tokens) { return static_cast<double>(tokens); }

void print(const char* what, const Sizes& sizes, const PaddingWaste& waste) {
  std::cout << what << ": " << sizes.size() << " sizes, padding " << 100 * waste.tokens << " % of tokens, "
            << 100 * waste.time << " % of time\n";
}

TEST(PaddingWaste, IsTheShareOfPaddingInTheComputation) {
  TokenWeights weights(11);
  weights[3] = 2;   // padded to 4
  weights[8] = 1;   // exact
  weights[10] = 1;  // above the largest size
  const TokenCost cost = [](std::int64_t tokens) { return 10.0 + static_cast<double>(tokens); };
  const PaddingWaste waste = padding_waste(Sizes{4, 8}, cost, weights);
  EXPECT_DOUBLE_EQ(waste.tokens, 2.0 / 16);
  EXPECT_DOUBLE_EQ(waste.time, 2.0 / 46);
  EXPECT_DOUBLE_EQ(waste.exact, 0.25);
  EXPECT_DOUBLE_EQ(waste.served, 0.75);
  EXPECT_EQ(padding_waste(Sizes{2}, cost, weights).served, 0);
  EXPECT_EQ(padding_waste(Sizes{}, cost, weights).tokens, 0);
}

TEST(AutoLadder, WastesLittleWhereTheDefaultWastesMore) {
  const TokenWeights uniform = uniform_weights(33, 8192);
  const PaddingWaste fixed = padding_waste(prefill_ladder(8192), prior_token_cost, uniform);
  print("default to 8192", prefill_ladder(8192), fixed);
  EXPECT_NEAR(fixed.tokens, 0.042, 0.001);
  EXPECT_GT(fixed.time, 0.03);
  const Sizes sizes = auto_ladder(8192, prior_token_cost);
  const PaddingWaste waste = padding_waste(sizes, prior_token_cost, uniform);
  print("auto to 8192, nothing measured", sizes, waste);
  EXPECT_LE(waste.time, 0.02);
  EXPECT_LE(waste.tokens, 0.03);
  EXPECT_LE(sizes.size(), 96u);
}

TEST(AutoLadder, KeepsOrderLimitsAndTheLargestSize) {
  for (const std::int64_t max : {1, 3, 32, 33, 40, 512, 2000, 2048, 4096, 8192, 10000, 131072}) {
    const Sizes sizes = auto_ladder(max, prior_token_cost);
    ASSERT_FALSE(sizes.empty());
    EXPECT_EQ(sizes.back(), max);
    EXPECT_TRUE(std::ranges::is_sorted(sizes, std::less_equal<>()) || sizes.size() == 1) << max;
    EXPECT_EQ(std::ranges::adjacent_find(sizes), sizes.end());
    EXPECT_LE(sizes.size(), std::max<std::size_t>(96, prefill_ladder(max).size()));
  }
  EXPECT_THAT(auto_ladder(0, prior_token_cost), IsEmpty());
}

TEST(AutoLadder, DropsSizesThatCostAsMuchAsTheNext) {
  // All forwards of up to 512 tokens take equally long, as if the time were spent on reading the weights.
  const TokenCost cost = [](std::int64_t tokens) { return static_cast<double>(std::max<std::int64_t>(tokens, 512)); };
  const Sizes sizes = auto_ladder(2048, cost);
  EXPECT_EQ(sizes.front(), 512);
  EXPECT_LE(padding_waste(sizes, cost, uniform_weights(33, 2048)).time, 0.02);
  EXPECT_THAT(auto_ladder(2048, prior_token_cost), Contains(4)) << "cold, nothing is taken away";
}

TEST(AutoLadder, AddsSizesWhereTimeIsLost) {
  // Forwards of more than 7000 tokens take ten times as long per token as shorter forwards. Padding therefore costs the
  // most above 7000 tokens.
  const TokenCost cost = [](std::int64_t tokens) { return static_cast<double>(tokens) * (tokens > 7000 ? 10 : 1); };
  const auto above = [](const Sizes& sizes) { return std::ranges::count_if(sizes, [](auto s) { return s > 7000; }); };
  EXPECT_GE(above(auto_ladder(8192, cost)), 2 * above(prefill_ladder(8192)));
  for (const std::int64_t size : auto_ladder(8192, cost))
    EXPECT_TRUE(size % 16 == 0 || size < 48) << size << ": off the kernels' tiles";
}

TEST(FittedLadder, TakesTheCountsThatWereSeenMost) {
  TokenWeights weights(1001);
  weights[100] = 50;
  weights[777] = 30;
  weights[1000] = 5;
  weights[90] = 1;
  const LadderGoal all{.time_waste = 0, .exact = 1, .most_sizes = 96, .step = 1};
  EXPECT_THAT(fitted_ladder(1000, linear, weights, all), ElementsAre(90, 100, 777, 1000));
  EXPECT_THAT(fitted_ladder(1024, linear, weights, all), ElementsAre(90, 100, 777, 1000, 1024));
  LadderGoal three = all;
  three.most_sizes = 3;
  EXPECT_THAT(fitted_ladder(1000, linear, weights, three), ElementsAre(100, 777, 1000));
  LadderGoal mostly = all;
  mostly.exact = 0.6;
  EXPECT_THAT(fitted_ladder(1000, linear, weights, mostly), ElementsAre(100, 1000));
  EXPECT_THAT(fitted_ladder(64, linear, TokenWeights(10), all), ElementsAre(64)) << "no forward was seen";
  EXPECT_THAT(fitted_ladder(64, linear, {}, all), ElementsAre(64));
}

}  // namespace
}  // namespace tessera
