// Catches: a value that is not the nearest one that a search among all values of the type finds in double precision; a
// scale or factor that differs from its formula; ties that do not go to the even code; a column at the end of a block
// that gets the scale of the next block.
#include "tessera/model/rounding/quantise_values.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tessera/base/float8.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using RoundedTo = Rounding::Values;

// Returns all magnitudes of a floating-point format, in the order of their codes.
std::vector<double> code_magnitudes(RoundedTo values) {
  if (values == RoundedTo::kE2M1) return {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<double> magnitudes;
  for (std::uint32_t code = 0; code < 0x7f; ++code) magnitudes.push_back(double{number_of_e4m3(code)});
  return magnitudes;
}

// Returns the code of the value nearest to `quotient`. In a tie, returns the even code.
int nearest_code(RoundedTo values, double quotient) {
  if (values == RoundedTo::kInt8) return static_cast<int>(std::clamp(std::nearbyint(quotient), -127.0, 127.0)) & 0xff;
  if (values == RoundedTo::kInt4) return static_cast<int>(std::clamp(std::nearbyint(quotient), -8.0, 7.0)) + 8;
  const std::vector<double> magnitudes = code_magnitudes(values);
  const double wanted = std::abs(quotient);
  std::size_t best = 0;
  for (std::size_t code = 1; code < magnitudes.size(); ++code) {
    const double gain = std::abs(magnitudes[best] - wanted) - std::abs(magnitudes[code] - wanted);
    if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
  }
  const int sign = std::signbit(quotient) ? (values == RoundedTo::kE2M1 ? 0x8 : 0x80) : 0;
  return static_cast<int>(best) | sign;
}

// Returns numbers of all magnitudes up to about `limit`, and every midpoint between two values of the format.
std::vector<float> numbers_to_round(RoundedTo values, double limit) {
  std::vector<float> numbers{0.0F, -0.0F, 1e-30F, -1e-30F, static_cast<float>(limit), static_cast<float>(-limit)};
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-14.0, std::log2(limit));
  for (int i = 0; i < 20'000; ++i) {
    const auto number = static_cast<float>(std::exp2(exponent(random)));
    numbers.push_back(i % 2 == 0 ? number : -number);
  }
  const bool integers = values == RoundedTo::kInt8 || values == RoundedTo::kInt4;
  const std::vector<double> magnitudes = integers ? std::vector<double>{} : code_magnitudes(values);
  for (std::size_t i = 1; i < magnitudes.size(); ++i)
    numbers.push_back(static_cast<float>((magnitudes[i - 1] + magnitudes[i]) / 2));
  for (int i = -8; integers && i < 8; ++i) numbers.push_back(static_cast<float>(i) + 0.5F);
  return numbers;
}

class QuantiseValues : public ::testing::TestWithParam<RoundedTo> {};

TEST_P(QuantiseValues, EveryValueIsTheNearestOfItsQuotient) {
  const double limit = GetParam() == RoundedTo::kE4M3 ? 448 : GetParam() == RoundedTo::kInt8 ? 127 : 7;
  for (const float divisor : {1.0F, 0.0123F, 3.7e-5F}) {
    std::vector<float> numbers = numbers_to_round(GetParam(), limit);
    for (float& number : numbers) number *= divisor;
    const std::vector<float> divisors(numbers.size(), divisor);
    std::vector<std::uint8_t> codes(numbers.size());
    round_values(GetParam(), numbers, divisors, codes);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto quotient = static_cast<float>(double{numbers[i]} / double{divisor});
      ASSERT_EQ(codes[i], nearest_code(GetParam(), double{quotient})) << numbers[i] << " / " << divisor;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantiseValues,
                         ::testing::Values(RoundedTo::kE4M3, RoundedTo::kInt8, RoundedTo::kInt4, RoundedTo::kE2M1));

float scale_of_block(RoundedTo values, float greatest, float factor = 1.0F) {
  const std::vector bits{std::bit_cast<std::uint32_t>(greatest)};
  std::vector<float> scale(1);
  block_scales(values, bits, factor, scale);
  return scale[0];
}

TEST(BlockScales, TakeTheGreatestMagnitudeToTheGreatestValue) {
  for (const float greatest : {0.02F, 1.0F, 3.3e-5F, 7.0e4F}) {
    EXPECT_EQ(scale_of_block(RoundedTo::kE4M3, greatest), static_cast<float>(double{greatest} / 448));
    EXPECT_EQ(scale_of_block(RoundedTo::kInt8, greatest), static_cast<float>(double{greatest} / 127));
    EXPECT_EQ(scale_of_block(RoundedTo::kInt4, greatest), static_cast<float>(double{greatest} / 7));
    const float factor = matrix_factor(RoundedTo::kE2M1, greatest);
    EXPECT_EQ(factor, static_cast<float>(double{greatest} / (448 * 6)));
    EXPECT_EQ(scale_of_block(RoundedTo::kE2M1, greatest, factor), 448.0F);
  }
  EXPECT_EQ(matrix_factor(RoundedTo::kE4M3, 3.0F), 1.0F) << "a format without factors";
}

TEST(BlockScales, OfZerosAreAboveZero) {
  for (const RoundedTo values : {RoundedTo::kE4M3, RoundedTo::kInt8, RoundedTo::kInt4})
    EXPECT_EQ(scale_of_block(values, 0.0F), 1.0F);
  EXPECT_EQ(matrix_factor(RoundedTo::kE2M1, 0.0F), 1.0F);
  EXPECT_EQ(scale_of_block(RoundedTo::kE2M1, 0.0F), 0x1p-9F);
  EXPECT_EQ(scale_of_block(RoundedTo::kE2M1, 1e-6F), 0x1p-9F) << "a block that is small beside the matrix";
}

TEST(BlockScales, AreRoundedToSmallFloatsUnderAFactor) {
  const float factor = matrix_factor(RoundedTo::kE2M1, 1.0F);
  for (float greatest = 1.0F; greatest > 1e-4F; greatest *= 0.93F) {
    const double exact = double{greatest} / 6 / double{factor};
    const std::vector<double> all = code_magnitudes(RoundedTo::kE4M3);
    const double nearest = *std::ranges::min_element(all, {}, [&](double m) { return std::abs(m - exact); });
    EXPECT_EQ(double{scale_of_block(RoundedTo::kE2M1, greatest, factor)}, nearest) << greatest;
  }
}

TEST(Columns, MapToTheirBlocks) {
  for (const std::int64_t block : {3, 16, 128}) {
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{1}, block - 1}) {
      for (const std::size_t count : {1u, 2u, 40u, 300u}) {
        const std::size_t blocks = (static_cast<std::size_t>(first) + count - 1) / static_cast<std::size_t>(block) + 1;
        std::vector<float> scales(blocks);
        for (std::size_t b = 0; b < blocks; ++b) scales[b] = static_cast<float>(b + 1);
        std::vector<float> divisors(count);
        spread_scales(scales, 2.0F, first, block, divisors);
        std::vector<std::uint32_t> bits(count);
        std::vector<std::uint32_t> greatest(blocks);
        std::vector<std::uint32_t> expected(blocks);
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t b = (static_cast<std::size_t>(first) + i) / static_cast<std::size_t>(block);
          ASSERT_EQ(divisors[i], 2.0F * scales[b]) << "column " << i << " of blocks of " << block << " from " << first;
          bits[i] = static_cast<std::uint32_t>(i * 7919 % 1000);
          expected[b] = std::max(expected[b], bits[i]);
        }
        raise_to_columns(bits, first, block, greatest);
        EXPECT_EQ(greatest, expected) << count << " columns of blocks of " << block << " from " << first;
      }
    }
  }
}

TEST(Magnitudes, AreRaisedWithoutTheirSigns) {
  std::vector<std::uint32_t> greatest{std::bit_cast<std::uint32_t>(1.0F), 0, 0};
  raise_to_magnitudes(std::vector{-0.5F, -2.0F, INFINITY}, greatest);
  EXPECT_THAT(greatest,
              ElementsAre(std::bit_cast<std::uint32_t>(1.0F), std::bit_cast<std::uint32_t>(2.0F), kInfiniteBits));
}

TEST(PackPairs, PutsTheFirstValueInTheLowerHalf) {
  std::vector<std::byte> bytes(2);
  pack_pairs(std::vector<std::uint8_t>{1, 2, 15, 8}, bytes);
  EXPECT_THAT(bytes, ElementsAre(std::byte{0x21}, std::byte{0x8f}));
}

}  // namespace
}  // namespace tessera
