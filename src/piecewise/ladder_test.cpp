// Catches: a ladder that lacks a size or has an additional one; a maximum that the ladder does not reach; a list whose
// text is misread or wrongly accepted; and rounding to the wrong size at a boundary.
#include "tessera/piecewise/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Sizes = std::vector<std::int64_t>;

// The default ladder of up to 2048 tokens, which has 42 sizes.
const Sizes kTo2048 = {4,   8,   12,  16,  20,  24,  28,  32,  48,  64,   80,   96,   112,  128,
                       144, 160, 176, 192, 208, 224, 240, 256, 288, 320,  352,  384,  416,  448,
                       480, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1280, 1536, 1792, 2048};

Sizes and_then(Sizes sizes, std::int64_t last, std::int64_t step) {
  while (sizes.back() < last) sizes.push_back(sizes.back() + step);
  return sizes;
}

TEST(PrefillLadder, HasTheScheduledSizes) {
  EXPECT_EQ(prefill_ladder(2048), kTo2048);
  EXPECT_EQ(prefill_ladder(2048).size(), 42u);
  const Sizes to4096 = and_then(kTo2048, 4096, 256);
  EXPECT_EQ(prefill_ladder(4096), to4096);
  EXPECT_EQ(to4096.size(), 50u);
  EXPECT_EQ(prefill_ladder(8192), and_then(to4096, 8192, 512));
  EXPECT_EQ(prefill_ladder(8192).size(), 58u);
}

TEST(PrefillLadder, LegacyHasSmallerStepsAbove512) {
  const Sizes to512(kTo2048.begin(), kTo2048.begin() + 30);
  EXPECT_EQ(prefill_ladder(512, PrefillSchedule::kLegacy), to512);
  const Sizes to4096 = and_then(to512, 4096, 128);
  EXPECT_EQ(prefill_ladder(4096, PrefillSchedule::kLegacy), to4096);
  EXPECT_EQ(prefill_ladder(8192, PrefillSchedule::kLegacy), and_then(to4096, 8192, 256));
}

TEST(PrefillLadder, AnOffStepMaximumIsTheLastSize) {
  EXPECT_THAT(prefill_ladder(30), ElementsAre(4, 8, 12, 16, 20, 24, 28, 30));
  EXPECT_THAT(prefill_ladder(40), ElementsAre(4, 8, 12, 16, 20, 24, 28, 32, 40));
  EXPECT_EQ(prefill_ladder(2000).back(), 2000);
  EXPECT_EQ(prefill_ladder(2000).size(), 42u);
  EXPECT_EQ(prefill_ladder(10000).back(), 10000);
  EXPECT_EQ(prefill_ladder(2000, PrefillSchedule::kLegacy).back(), 2000);
  EXPECT_THAT(prefill_ladder(1), ElementsAre(1));
  EXPECT_THAT(prefill_ladder(4), ElementsAre(4));
  EXPECT_THAT(prefill_ladder(5), ElementsAre(4, 5));
  EXPECT_THAT(prefill_ladder(0), IsEmpty());
}

TEST(DecodeLadder, HasTheScheduledSizes) {
  const Sizes to256 = and_then({1, 2, 4, 8, 12, 16}, 256, 8);
  EXPECT_EQ(decode_ladder(256), to256);
  EXPECT_EQ(to256.size(), 36u);
  const Sizes to496 = and_then(to256, 496, 16);
  EXPECT_EQ(decode_ladder(496), to496);
  EXPECT_EQ(decode_ladder(768), and_then(and_then(to496, 512, 16), 768, 32));
  EXPECT_THAT(decode_ladder(1), ElementsAre(1));
  EXPECT_THAT(decode_ladder(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(decode_ladder(16), ElementsAre(1, 2, 4, 8, 12, 16));
  EXPECT_EQ(decode_ladder(260).back(), 260);
}

TEST(Ladders, AscendStrictlyToTheirMaximum) {
  for (std::int64_t max = 1; max <= 9000; max += max < 300 ? 1 : 37) {
    for (const Sizes& sizes :
         {prefill_ladder(max), prefill_ladder(max, PrefillSchedule::kLegacy), decode_ladder(max)}) {
      ASSERT_EQ(sizes.back(), max);
      for (std::size_t i = 1; i < sizes.size(); ++i) ASSERT_LT(sizes[i - 1], sizes[i]) << max;
    }
  }
}

TEST(ParseLadder, TakesEverySpelling) {
  const struct {
    std::vector<std::string> values;
    Sizes sizes;
  } cases[] = {
      {{"64"}, {64}},
      {{"[64]"}, {64}},
      {{"[64,128]"}, {64, 128}},
      {{"[64, 128]"}, {64, 128}},
      {{"[ 64 , 128 ]"}, {64, 128}},
      {{"64,128"}, {64, 128}},
      {{"64, 128"}, {64, 128}},
      {{"64", "128"}, {64, 128}},
      {{"64", "[128,256]", "4,8"}, {4, 8, 64, 128, 256}},
      {{"128,64,128"}, {64, 128}},
      {{"64", "64"}, {64}},
      {{"1", "1048576"}, {1, 1048576}},
      {{"007"}, {7}},
  };
  for (const auto& c : cases) {
    const Result<Sizes> sizes = parse_ladder(c.values, "--sizes");
    ASSERT_TRUE(sizes.ok()) << c.values[0] << ": " << sizes.status().to_string();
    EXPECT_EQ(*sizes, c.sizes) << c.values[0];
  }
}

TEST(ParseLadder, RefusesEveryOtherAndNamesFlagAndValue) {
  const struct {
    std::vector<std::string> values;
    const char* named;
  } cases[] = {
      {{"0"}, "\"0\""},         {{"-4"}, "\"-4\""},       {{"64,-128"}, "\"-128\""},
      {{"1048577"}, "1048577"}, {{"abc"}, "\"abc\""},     {{"64,abc"}, "\"abc\""},
      {{""}, "\"\""},           {{"[]"}, "\"\""},         {{" "}, "\"\""},
      {{"64,,128"}, "\"\""},    {{"64,"}, "\"\""},        {{",64"}, "\"\""},
      {{"[64"}, "\"[64\""},     {{"64]"}, "\"64]\""},     {{"[[64]]"}, "\"[64]\""},
      {{"["}, "\"[\""},         {{"]"}, "\"]\""},         {{"6.5"}, "\"6.5\""},
      {{"64 128"}, "64 128"},   {{"0x40"}, "\"0x40\""},   {{"1e3"}, "\"1e3\""},
      {{"+64"}, "\"+64\""},     {{"64", "zwei"}, "zwei"}, {{"99999999999999999999"}, "99999999999999999999"},
      {{"\"64\""}, "\"64\""},   {{"64;128"}, "64;128"},   {{}, "\"\""},
  };
  for (const auto& c : cases) {
    const Result<Sizes> sizes = parse_ladder(c.values, "--piecewise-cuda-graph-tokens");
    EXPECT_EQ(sizes.status().code(), StatusCode::kInvalidArgument) << c.named;
    EXPECT_THAT(sizes.status().message(),
                AllOf(HasSubstr("--piecewise-cuda-graph-tokens"), HasSubstr(c.named), HasSubstr("1 to 1048576")));
  }
}

TEST(RoundUp, TakesTheSmallestThatHolds) {
  const Sizes sizes = {4, 8, 16};
  const struct {
    std::int64_t count;
    std::optional<std::int64_t> size;
  } cases[] = {{0, 4}, {1, 4}, {4, 4}, {5, 8}, {8, 8}, {9, 16}, {16, 16}, {17, std::nullopt}};
  for (const auto& c : cases) EXPECT_EQ(round_up(sizes, c.count), c.size) << c.count;
  EXPECT_EQ(round_up(Sizes{}, 1), std::nullopt);
  EXPECT_EQ(round_up(Sizes{7}, 7), 7);
}

}  // namespace
}  // namespace tessera
