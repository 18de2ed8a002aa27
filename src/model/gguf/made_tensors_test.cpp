// Catches: rows, columns or blocks of a GGUF file that are converted to another order than Hugging Face's; reads whose
// result depends on where they begin.
#include "tessera/model/gguf/made_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "tessera/ops/moe/moe_experts.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<float> counted(std::size_t count, float first = 0) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

StoredBlocks matrix_of(const std::vector<float>& numbers, std::int64_t cols) {
  return {BlockType::kF32, reinterpret_cast<const std::byte*>(numbers.data()), cols};
}

std::vector<float> read(const TensorElements& elements, std::int64_t first, std::int64_t count) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  elements.read(first, count, reinterpret_cast<std::byte*>(numbers.data()));
  return numbers;
}

// Expects that a read of any range gives the same elements as a read of the whole tensor.
void expect_parts_fit(const TensorElements& elements, std::int64_t count) {
  const std::vector<float> whole = read(elements, 0, count);
  for (std::int64_t first = 0; first < count; ++first)
    for (std::int64_t part = 1; part <= count - first; part += 3)
      ASSERT_THAT(read(elements, first, part), ElementsAreArray(whole.data() + first, static_cast<std::size_t>(part)));
}

TEST(MadeTensors, PairsOfRowsBecomeHalves) {
  // There are two heads of four rows. Stored rows 0 and 2 of a head become its first half.
  const std::vector<float> stored = counted(16);
  const auto made = make_rows({.matrices = {matrix_of(stored, 2)}}, {.rows = {.a = 2, .b = 2}});
  EXPECT_THAT(read(*made, 0, 16), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  expect_parts_fit(*made, 16);
}

TEST(MadeTensors, RowsBehindTheFirstOnesAreGrouped) {
  // The first row keeps its place. The other six rows form a matrix [2, 3] in the result, which the file stores
  // transposed, as [3, 2].
  const std::vector<float> stored = counted(7);
  const auto made = make_rows({.matrices = {matrix_of(stored, 1)}}, {.rows = {.first = 1, .a = 2, .b = 3}});
  EXPECT_THAT(read(*made, 0, 7), ElementsAre(0, 1, 3, 5, 2, 4, 6));
}

TEST(MadeTensors, RunsOfColumnsChangePlaces) {
  const std::vector<float> stored = counted(16);
  const auto made = make_rows({.matrices = {matrix_of(stored, 8)}}, {.cols = {.a = 2, .b = 2, .unit = 2}});
  EXPECT_THAT(read(*made, 0, 8), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  expect_parts_fit(*made, 16);
}

TEST(MadeTensors, RowsOfTwoMatricesAreJoinedInTurn) {
  const std::vector<float> gate = counted(8);
  const std::vector<float> up = counted(8, 10);
  const auto made = make_rows({.matrices = {matrix_of(gate, 2), matrix_of(up, 2)}}, {});
  EXPECT_THAT(read(*made, 0, 16), ElementsAre(0, 1, 10, 11, 2, 3, 12, 13, 4, 5, 14, 15, 6, 7, 16, 17));
  expect_parts_fit(*made, 16);
}

TEST(MadeTensors, NumbersChange) {
  const std::vector<float> stored = {-1.0F, -std::exp(2.0F)};
  const auto less = make_rows({.matrices = {matrix_of(stored, 2)}}, {.change = NumberChange::kLessOne});
  EXPECT_EQ(read(*less, 0, 1)[0], -2.0F);
  const auto log = make_rows({.matrices = {matrix_of(stored, 2)}}, {.change = NumberChange::kLogOfNegative});
  EXPECT_EQ(read(*log, 0, 1)[0], 0.0F);
  EXPECT_NEAR(read(*log, 1, 1)[0], 2.0F, 1e-6F);
}

TEST(MadeTensors, BlocksAreReadFromAnyElement) {
  // A Q8_0 block has a half-precision scale, here 0.5, then 32 integers.
  std::vector<std::byte> stored(2 * 34);
  for (std::size_t block = 0; block < 2; ++block) {
    stored[block * 34 + 1] = std::byte{0x38};
    for (std::size_t i = 0; i < 32; ++i) stored[block * 34 + 2 + i] = static_cast<std::byte>(block * 32 + i);
  }
  const auto made = make_rows({.matrices = {StoredBlocks(BlockType::kQ8_0, stored.data(), 64)}}, {});
  std::vector<float> expected = counted(64);
  for (float& number : expected) number *= 0.5F;
  EXPECT_THAT(read(*made, 0, 64), ElementsAreArray(expected));
  expect_parts_fit(*made, 64);
}

TEST(MadeTensors, Mxfp4KeepsExponentsAndPairsNeighbours) {
  // A stored block has the exponent, then 16 bytes. Byte i has element i in its lower half and element i + 16 in its
  // upper half.
  std::vector<std::byte> stored{std::byte{7}};
  for (unsigned i = 0; i < 16; ++i) stored.push_back(static_cast<std::byte>(i | (15 - i) << 4));
  const JoinedRows rows{.matrices = {StoredBlocks(BlockType::kMXFP4, stored.data(), kMxfp4Block)}};
  std::vector<std::byte> values(16);
  make_mxfp4_values(rows)->read(0, 16, values.data());
  EXPECT_EQ(values[0], std::byte{0x10});  // elements 0 and 1
  EXPECT_EQ(values[7], std::byte{0xfe});  // elements 14 and 15
  EXPECT_EQ(values[8], std::byte{0xef});  // elements 16 and 17
  std::byte exponent{};
  make_mxfp4_exponents(rows)->read(0, 1, &exponent);
  EXPECT_EQ(exponent, std::byte{7});
}

TEST(MadeTensors, LatentKeysAreTransposedAboveValues) {
  // There are two heads, with a latent vector of size three. Each head has two rows of keys and one row of values.
  const std::vector<float> keys = counted(12);
  const std::vector<float> values = counted(6, 100);
  const auto made =
      make_latent_rows(matrix_of(keys, 2), matrix_of(values, 3), {.key_rows = 2, .value_rows = 1, .latent = 3});
  EXPECT_THAT(read(*made, 0, 18), ElementsAre(0, 2, 4, 1, 3, 5, 100, 101, 102, 6, 8, 10, 7, 9, 11, 103, 104, 105));
  expect_parts_fit(*made, 18);
}

// A row has four blocks of Q8_0, and the columns of two blocks change places. Sixteen columns are no whole block.
TEST(MadeTensors, PermutedColumnsKeepBlocksIfTheyAreWhole) {
  constexpr std::int64_t kBlocks = 4;
  constexpr std::size_t kBytes = 34;
  std::vector<std::byte> row(kBlocks * kBytes);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::byte>(i / kBytes);
  const StoredBlocks matrix(BlockType::kQ8_0, row.data(), kBlocks * 32);
  const auto made = make_rows({.matrices = {matrix}}, {.cols = {.a = 2, .b = 2, .unit = 32}});
  ASSERT_TRUE(made->has_blocks());
  std::vector<std::byte> copied(3 * kBytes);
  made->copy_blocks(0, 1, 3, copied.data());
  for (const auto& [block, stored] : {std::pair(0u, 2), std::pair(1u, 1), std::pair(2u, 3)})
    EXPECT_EQ(copied[block * kBytes], static_cast<std::byte>(stored)) << block;
  EXPECT_FALSE(make_rows({.matrices = {matrix}}, {.cols = {.a = 2, .b = 4, .unit = 16}})->has_blocks());
  EXPECT_FALSE(make_rows({.matrices = {matrix}}, {.change = NumberChange::kLessOne})->has_blocks());
  const StoredBlocks multiplied(BlockType::kQ8_0, row.data(), kBlocks * 32, 2);
  EXPECT_FALSE(make_rows({.matrices = {multiplied}}, {})->has_blocks());
}

}  // namespace
}  // namespace tessera
