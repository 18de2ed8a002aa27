// Catches: rounding that differs from that of GGUF's other writers; a field of a block in the wrong place; a search
// that finds worse scales than it should.
#include "tessera/ops/quantised/blocks/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tessera/ops/quantised/blocks/dequantise.h"

namespace tessera {
namespace {

// A record of tests/data/blocks/quantised.bin.
struct WrittenRecord {
  BlockType type;
  std::int64_t count;
  std::vector<float> numbers;
  std::vector<std::uint8_t> blocks;
};

std::vector<WrittenRecord> read_written() {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/tests/data/blocks/quantised.bin", std::ios::binary);
  std::vector<WrittenRecord> records;
  std::uint32_t head[2];
  while (file.read(reinterpret_cast<char*>(head), sizeof(head))) {
    WrittenRecord r{.type = static_cast<BlockType>(head[0]), .count = head[1], .numbers = {}, .blocks = {}};
    const BlockTypeInfo& size = block_type_info(r.type);
    r.numbers.resize(static_cast<std::size_t>(r.count * size.elements));
    r.blocks.resize(static_cast<std::size_t>(r.count * size.bytes));
    file.read(reinterpret_cast<char*>(r.numbers.data()), static_cast<std::streamsize>(r.numbers.size() * 4));
    file.read(reinterpret_cast<char*>(r.blocks.data()), static_cast<std::streamsize>(r.blocks.size()));
    records.push_back(std::move(r));
  }
  return records;
}

// Returns x rounded to the type's numbers. `importance` may be empty.
std::vector<float> rounded(BlockType type, const std::vector<float>& x, const std::vector<float>& importance = {}) {
  const BlockTypeInfo& size = block_type_info(type);
  const std::int64_t count = std::ssize(x) / size.elements;
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(count * size.bytes) + 1, 0xee);
  quantise(type, x.data(), count, blocks.data(), importance.empty() ? nullptr : importance.data());
  EXPECT_EQ(blocks.back(), 0xee) << "a byte behind the last block was written";
  std::vector<float> y(x.size());
  dequantise(type, blocks.data(), count, y.data());
  return y;
}

// Returns ‖x − y‖ / ‖x‖.
double distance(const std::vector<float>& x, const std::vector<float>& y) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    difference += d * d;
    norm += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return std::sqrt(difference / norm);
}

std::vector<float> normal_numbers(std::size_t count) {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> x(count);
  for (float& v : x) v = normal(generator);
  return x;
}

TEST(Quantise, TypesWithoutSearchHaveTheBlocksOfGgufPy) {
  const std::vector<WrittenRecord> records = read_written();
  EXPECT_EQ(records.size(), 7u);
  for (const WrittenRecord& r : records) {
    ASSERT_TRUE(can_quantise(r.type)) << block_type_info(r.type).name;
    std::vector<std::uint8_t> blocks(r.blocks.size());
    quantise(r.type, r.numbers.data(), r.count, blocks.data());
    for (std::size_t i = 0; i < blocks.size(); ++i)
      ASSERT_EQ(blocks[i], r.blocks[i]) << block_type_info(r.type).name << ", byte " << i;
  }
}

struct Bound {
  BlockType type;
  double most;  // limit of distance() for normally distributed numbers
};
constexpr Bound kBounds[] = {
    {BlockType::kQ8_0, 0.0054},  {BlockType::kQ5_1, 0.039}, {BlockType::kQ5_0, 0.043}, {BlockType::kQ4_1, 0.080},
    {BlockType::kQ4_0, 0.089},   {BlockType::kMXFP4, 0.13}, {BlockType::kQ2_K, 0.30},  {BlockType::kQ3_K, 0.16},
    {BlockType::kQ4_K, 0.072},   {BlockType::kQ5_K, 0.036}, {BlockType::kQ6_K, 0.018}, {BlockType::kIQ4_NL, 0.077},
    {BlockType::kIQ4_XS, 0.078},
};

TEST(Quantise, ErrorOfNormalNumbersIsWithinBounds) {
  const std::vector<float> x = normal_numbers(1 << 14);
  for (const Bound& bound : kBounds) {
    const double d = distance(x, rounded(bound.type, x));
    std::printf("%s: %.4f\n", std::string(block_type_info(bound.type).name).c_str(), d);
    EXPECT_LE(d, bound.most) << block_type_info(bound.type).name;
  }
}

// Returns Σ w (x − y)².
double weighted_error(const std::vector<float>& x, const std::vector<float>& y, const std::vector<float>& w) {
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    error += static_cast<double>(w[i]) * d * d;
  }
  return error;
}

// Makes about one number in eight a hundred times as important as the others. In a model's inputs, too, a few columns
// are far more important than the others.
std::vector<float> uneven_importance(std::size_t count) {
  std::mt19937 generator(7);
  std::vector<float> importance(count);
  for (float& v : importance) v = generator() % 8 == 0 ? 100.0F : 1.0F;
  return importance;
}

TEST(Quantise, ImportanceReducesTheWeightedError) {
  const std::vector<float> x = normal_numbers(1 << 14);
  const std::vector<float> importance = uneven_importance(x.size());
  for (const BlockTypeInfo& info : kBlockTypes) {
    if (!uses_importance(info.type)) continue;
    const double without = weighted_error(x, rounded(info.type, x), importance);
    const double with = weighted_error(x, rounded(info.type, x, importance), importance);
    std::printf("%s: %.3f of the error without importance\n", std::string(info.name).c_str(), with / without);
    EXPECT_LE(with, (info.type == BlockType::kQ6_K ? 0.97 : 0.85) * without) << info.name;
  }
}

TEST(Quantise, OnlySearchedTypesUseImportance) {
  const std::vector<float> x = normal_numbers(1 << 12);
  const std::vector<float> importance = uneven_importance(x.size());
  for (const BlockTypeInfo& info : kBlockTypes) {
    if (info.elements == 1) continue;
    if (!can_quantise(info.type)) {
      EXPECT_FALSE(uses_importance(info.type)) << info.name;
      continue;
    }
    EXPECT_EQ(rounded(info.type, x, importance) != rounded(info.type, x), uses_importance(info.type)) << info.name;
  }
}

// The numbers in the second half of each block are a twentieth of those in the first. A type whose parts have scales of
// their own keeps both precisely.
TEST(Quantise, PartsOfABlockHaveScalesOfTheirOwn) {
  std::vector<float> x = normal_numbers(1 << 12);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (i % 256 >= 128) x[i] *= 0.05F;
  for (const BlockType type : {BlockType::kQ4_K, BlockType::kQ5_K, BlockType::kQ6_K, BlockType::kIQ4_XS}) {
    const std::vector<float> y = rounded(type, x);
    for (std::size_t block = 0; block < x.size(); block += 256) {
      const auto at = static_cast<std::ptrdiff_t>(block) + 128;
      const std::vector<float> small(x.begin() + at, x.begin() + at + 128);
      EXPECT_LE(distance(small, {y.begin() + at, y.begin() + at + 128}), 0.45) << block_type_info(type).name;
    }
  }
}

// The range of the integers of a type. If the range includes negative integers, the test puts the least one into each
// part of a block. If it begins at 0, the test puts 0 and the greatest integer into each part.
struct Grid {
  BlockType type;
  int least;
  int most;
};

TEST(Quantise, NumbersOfATypeStayThemselves) {
  for (const Grid& grid :
       {Grid{BlockType::kQ8_0, -127, 127}, Grid{BlockType::kQ4_0, -8, 7}, Grid{BlockType::kQ5_0, -16, 15},
        Grid{BlockType::kQ4_1, 0, 15}, Grid{BlockType::kQ5_1, 0, 31}, Grid{BlockType::kQ2_K, 0, 3},
        Grid{BlockType::kQ3_K, -4, 3}, Grid{BlockType::kQ4_K, 0, 15}, Grid{BlockType::kQ5_K, 0, 31},
        Grid{BlockType::kQ6_K, -32, 31}}) {
    std::vector<float> x;
    for (int i = 0; i < 512; ++i) {
      const int extreme = grid.least < 0 ? grid.least : grid.most;
      const int other = i % 16 == 1 ? grid.least : grid.least + i * 7 % (grid.most - grid.least + 1);
      x.push_back(static_cast<float>(i % 16 == 0 ? extreme : other));
    }
    EXPECT_LE(distance(x, rounded(grid.type, x)), 1e-3) << block_type_info(grid.type).name;
  }
  constexpr float kNumbers[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  constexpr float kE2M1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.5F, -1, -1.5F, -2, -3, -4, -6, 4};
  std::vector<float> x;
  std::vector<float> small;
  for (int i = 0; i < 512; ++i) x.push_back(0.01F * kNumbers[i * 7 % 16]);
  for (int i = 0; i < 512; ++i) small.push_back(0.25F * kE2M1[i * 7 % 16]);
  for (const BlockType type : {BlockType::kIQ4_NL, BlockType::kIQ4_XS})
    EXPECT_LE(distance(x, rounded(type, x)), 1e-3) << block_type_info(type).name;
  EXPECT_EQ(rounded(BlockType::kMXFP4, small), small);
}

// Returns importances that are as uneven as quantise() accepts.
std::vector<float> extreme_importance(std::size_t count) {
  std::vector<float> importance(count, 1e-6F);
  for (std::size_t i = 0; i < count; i += 32) importance[i + 3] = 1e4F;
  return importance;
}

TEST(Quantise, ExtremeNumbersStayFinite) {
  for (const BlockTypeInfo& info : kBlockTypes) {
    if (!can_quantise(info.type) || info.elements == 1) continue;
    for (const float value : {0.0F, -0.0F, 1e-38F, -1e-45F, 1e-9F, kMostQuantised, -kMostQuantised}) {
      std::vector<float> x(512, value);
      x[3] = -value;
      x[300] = value / 3;
      const float most = std::abs(value);
      for (const std::vector<float>& importance : {std::vector<float>{}, extreme_importance(x.size())}) {
        for (const float y : rounded(info.type, x, importance)) {
          ASSERT_TRUE(std::isfinite(y)) << info.name << ", numbers of " << value;
          ASSERT_LE(std::abs(y), most * 1.5F + 1e-6F) << info.name << ", numbers of " << value;
        }
      }
    }
  }
}

// One number is far more important than the others. The weighted error must not be greater than without importances.
TEST(Quantise, OneImportantNumberLosesNoPrecision) {
  std::mt19937 generator(9);
  std::normal_distribution<float> normal;
  for (const BlockType type :
       {BlockType::kQ4_1, BlockType::kQ5_1, BlockType::kQ2_K, BlockType::kQ4_K, BlockType::kQ5_K})
    for (const float ratio : {1e2F, 1e4F, 1e6F}) {
      double with = 0;
      double without = 0;
      for (int round = 0; round < 20; ++round) {
        std::vector<float> x(256);
        for (float& number : x) number = normal(generator);
        std::vector<float> importance(x.size(), 1);
        importance[generator() % x.size()] = ratio;
        const auto error = [&](const std::vector<float>& y) {
          double sum = 0;
          for (std::size_t i = 0; i < x.size(); ++i) sum += importance[i] * std::pow(double{y[i]} - double{x[i]}, 2);
          return sum;
        };
        with += error(rounded(type, x, importance));
        without += error(rounded(type, x, {}));
      }
      EXPECT_LE(with, without) << block_type_info(type).name << ", ratio " << ratio;
    }
}

TEST(Quantise, PlainTypesRoundToTheNearest) {
  const std::vector<float> x{1.0F, -2.5F, 1.00390625F, 3.0e-5F};
  std::vector<std::uint8_t> bytes(16);
  quantise(BlockType::kF32, x.data(), 4, bytes.data());
  EXPECT_EQ(std::memcmp(bytes.data(), x.data(), 16), 0);
  quantise(BlockType::kBF16, x.data(), 4, bytes.data());
  EXPECT_EQ(bytes[0] | bytes[1] << 8, 0x3f80);
  EXPECT_EQ(bytes[4] | bytes[5] << 8, 0x3f80) << "a tie goes to the even one";
  quantise(BlockType::kF16, x.data(), 4, bytes.data());
  EXPECT_EQ(bytes[2] | bytes[3] << 8, 0xc100);
}

}  // namespace
}  // namespace tessera
