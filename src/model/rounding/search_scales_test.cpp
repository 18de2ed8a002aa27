// Catches: a searched scale with a greater weighted error than the scale that follows from the greatest magnitude; a
// search that gains nothing; scales that cannot be stored; very small or large float32 numbers that give wrong scales.
#include "tessera/model/rounding/search_scales.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "tessera/base/float8.h"

namespace tessera {
namespace {

using RoundedTo = Rounding::Values;

constexpr std::int64_t kBlocks = 8;

// A row of numbers, and the scales of its blocks with and without a search.
class SearchedRow {
 public:
  SearchedRow(const Rounding& rounding, std::vector<float> x, std::vector<float> importance)
      : rounding_(rounding), x_(std::move(x)), importance_(std::move(importance)), plain(kBlocks) {
    std::vector<std::uint32_t> bits(x_.size());
    raise_to_magnitudes(x_, bits);
    std::vector<std::uint32_t> greatest(kBlocks);
    raise_to_columns(bits, 0, rounding.block_cols, greatest);
    factor = matrix_factor(rounding.values, std::bit_cast<float>(*std::ranges::max_element(greatest)));
    block_scales(rounding.values, greatest, factor, plain);
    searched = plain;
    search_scales(rounding, factor, x_, importance_, searched);
  }

  // Returns the weighted squared error of a block in double precision, from the stored values.
  double error(const std::vector<float>& scales, std::int64_t block) const {
    const auto size = static_cast<std::size_t>(rounding_.block_cols);
    const std::size_t first = static_cast<std::size_t>(block) * size;
    const std::vector<float> divisors(size, scales[static_cast<std::size_t>(block)] * factor);
    std::vector<std::uint8_t> codes(size);
    round_values(rounding_.values, std::span(x_).subspan(first, size), divisors, codes);
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double value = number_of(codes[i]) * double{divisors[i]};
      sum += double{importance_[first + i]} * (double{x_[first + i]} - value) * (double{x_[first + i]} - value);
    }
    return sum;
  }

 private:
  double number_of(std::uint8_t code) const {
    if (rounding_.values == RoundedTo::kInt4) return code - 8;
    constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
  }

  Rounding rounding_;
  std::vector<float> x_;
  std::vector<float> importance_;

 public:
  float factor = 1;
  std::vector<float> plain;
  std::vector<float> searched;
};

class SearchScales : public ::testing::TestWithParam<Rounding> {
 protected:
  std::size_t size() const { return static_cast<std::size_t>(kBlocks * GetParam().block_cols); }

  std::vector<float> numbers(float deviation) {
    std::normal_distribution<float> normal(0.0F, deviation);
    std::vector<float> x(size());
    for (float& number : x) number = normal(random_);
    return x;
  }
  // Returns a random importance in e^-spread … e^spread for each number.
  std::vector<float> importance(float spread) {
    std::uniform_real_distribution<float> exponent(-spread, spread);
    std::vector<float> of_columns(size());
    for (float& number : of_columns) number = std::exp(exponent(random_));
    return of_columns;
  }

 private:
  std::mt19937 random_{11};
};

TEST_P(SearchScales, WeightedErrorNeverGrows) {
  for (const float spread : {0.0F, 1.0F, 4.0F, 7.0F}) {
    double with = 0;
    double without = 0;
    for (int round = 0; round < 50; ++round) {
      const SearchedRow row(GetParam(), numbers(0.02F), importance(spread));
      for (std::int64_t block = 0; block < kBlocks; ++block) {
        const double before = row.error(row.plain, block);
        const double after = row.error(row.searched, block);
        // The search computes errors in float32, so it may choose a scale that is slightly worse in double precision.
        ASSERT_LE(after, before * (1 + 1e-5)) << "block " << block << " of row " << round << ", spread " << spread;
        with += after;
        without += before;
      }
    }
    std::printf("spread %.0f: %.3f of the error without importances\n", double{spread}, with / without);
    EXPECT_LE(with, (spread < 4 ? 0.9 : 0.8) * without) << spread;
  }
}

TEST_P(SearchScales, ScalesStayStorable) {
  for (const float deviation : {1e-42F, 1e-20F, 1.0F, 1e18F, 5e37F}) {
    for (const float spread : {0.0F, 7.0F}) {
      const SearchedRow row(GetParam(), numbers(deviation), importance(spread));
      for (const float scale : row.searched) {
        ASSERT_TRUE(std::isfinite(scale)) << deviation;
        ASSERT_GT(scale, 0) << deviation;
        const float stored = GetParam().has_factor() ? to_float(from_float<Float8E4M3>(scale)) : scale;
        ASSERT_EQ(stored, scale) << deviation;
      }
    }
  }
}

TEST_P(SearchScales, ZerosKeepTheirScales) {
  const SearchedRow row(GetParam(), std::vector<float>(size(), 0.0F), importance(3));
  EXPECT_EQ(row.searched, row.plain);
}

INSTANTIATE_TEST_SUITE_P(Formats, SearchScales,
                         ::testing::Values(Rounding{RoundedTo::kInt4, 1, 128}, Rounding{RoundedTo::kInt4, 1, 32},
                                           Rounding{RoundedTo::kE2M1, 1, 16}));

}  // namespace
}  // namespace tessera
