// Catches: integers, scales and offsets that do not give the numbers of their block.
#include "tessera/ops/quantised/blocks/block_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tessera/ops/quantised/blocks/block_test_util.h"
#include "tessera/ops/quantised/blocks/dequantise.h"

namespace tessera {
namespace {

class BlockCodesOf : public ::testing::TestWithParam<BlockType> {};

std::vector<BlockType> types_with_codes() {
  std::vector<BlockType> types;
  for (const BlockType type : testing::block_types())
    if (block_codes_format(type) != nullptr) types.push_back(type);
  return types;
}

TEST(BlockCodes, TypesWithoutGridsOrExponentsHaveCodes) { EXPECT_EQ(types_with_codes().size(), 13U); }

TEST_P(BlockCodesOf, GiveTheBlocksNumbersBack) {
  const BlockTypeInfo& type = block_type_info(GetParam());
  const QuantisedFormat* format = block_codes_format(type.type);
  constexpr std::int64_t kBlocks = 40;
  const std::vector<std::uint8_t> blocks = testing::random_blocks(type.type, kBlocks, type.elements, 3);
  const auto size = static_cast<std::size_t>(kBlocks * type.elements);
  const auto groups = size / static_cast<std::size_t>(format->group_cols);
  std::vector<std::uint8_t> codes(size);
  std::vector<float> scales(groups);
  std::vector<float> offsets(groups);
  split_blocks(type.type, blocks.data(), kBlocks, {codes.data(), scales.data(), offsets.data()});
  std::vector<float> numbers(size);
  dequantise(type.type, blocks.data(), kBlocks, numbers.data());
  const bool bytes = format->values == QuantisedFormat::Values::kInt8;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t group = i / static_cast<std::size_t>(format->group_cols);
    const float code = bytes ? static_cast<float>(static_cast<std::int8_t>(codes[i]))
                             : static_cast<float>(codes[i]) - static_cast<float>(format->default_zero());
    EXPECT_TRUE(bytes || codes[i] <= 15) << "number " << i;
    const float most = std::abs(code * scales[group]) + std::abs(offsets[group]);
    EXPECT_NEAR(code * scales[group] + offsets[group], numbers[i], 1e-6F * most) << "number " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BlockCodesOf, ::testing::ValuesIn(types_with_codes()),
                         [](const auto& type) { return testing::test_name_of(type.param); });

}  // namespace
}  // namespace tessera
