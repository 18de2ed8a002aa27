// Catches: codes or scales of another row or column in the packed form; rows past the last full group that are lost;
// kernels whose results differ between instruction sets; sums that depend on the number of rows.
#include "tessera/ops/quantised/blocks/packed_layout.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tessera/ops/quantised/blocks/block_kernels.h"
#include "tessera/ops/quantised/blocks/block_test_util.h"
#include "tessera/ops/quantised/blocks/packed_rows.h"

namespace tessera::testing {
namespace {

class PackedBlocks : public ::testing::TestWithParam<BlockType> {};

TEST_P(PackedBlocks, PackedRowsKeepTheirNumbers) {
  const std::int64_t elements = block_type_info(GetParam()).elements;
  for (const std::int64_t rows : {1, 16, 37})
    for (const std::int64_t cols : {elements, 5 * elements, 8 * elements, std::int64_t{1280}}) {
      const BlockCase c = random_block_case(GetParam(), rows, cols, 3);
      const BlockMatrix m{.type = GetParam(),
                          .rows = rows,
                          .cols = cols,
                          .data = reinterpret_cast<const std::uint8_t*>(c.operand.bytes.data())};
      for (std::int64_t first = 0; first < rows; first += 5) {
        const std::int64_t count = std::min<std::int64_t>(rows - first, 20);
        std::vector<float> numbers(static_cast<std::size_t>(count * cols));
        block_rows(m, first, count, numbers.data());
        for (std::int64_t i = 0; i < count * cols; ++i)
          ASSERT_EQ(numbers[static_cast<std::size_t>(i)], c.numbers[static_cast<std::size_t>(first * cols + i)])
              << "row " << first + i / cols << " of " << rows << ", column " << i % cols << " of " << cols;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, PackedBlocks, ::testing::ValuesIn(block_types()),
                         [](const auto& c) { return test_name_of(c.param); });

std::vector<const blocks::BlockKernels*> kernels_of_machine() {
  std::vector<const blocks::BlockKernels*> all;
  for (const blocks::BlockKernels* k : {blocks::plain_kernels(), blocks::avx2_kernels(), blocks::vnni_kernels()})
    if (k != nullptr) all.push_back(k);
  return all;
}

std::vector<BlockType> packed_types() {
  std::vector<BlockType> types;
  for (const BlockType type : block_types())
    if (packed_layout(type) != nullptr) types.push_back(type);
  return types;
}

class BlockProducts : public ::testing::TestWithParam<BlockType> {};

// Multiplies sixteen rows of w by all rows of x. Codes are unpacked to panels if `by_panels`, and otherwise in
// registers.
std::vector<float> multiply(const blocks::BlockKernels& kernels, BlockType type, const BlockCase& w,
                            const blocks::Inputs& x, bool by_panels) {
  const auto* packed = reinterpret_cast<const std::uint8_t*>(w.operand.bytes.data());
  std::vector<float> sums(static_cast<std::size_t>(x.rows * kPackedRows));
  if (!by_panels) {
    for (std::int64_t r = 0; r < x.rows; r += blocks::kMostFewRows)
      kernels.few(type, packed, x, r, std::min(blocks::kMostFewRows, x.rows - r), sums.data() + r * kPackedRows,
                  kPackedRows);
    return sums;
  }
  const BlockTypeInfo& info = block_type_info(type);
  for (std::int64_t chunk = 0; chunk * blocks::kChunkParts < x.parts; ++chunk) {
    blocks::Panel panel;
    kernels.unpack(type, packed + kPackedRows * (chunk * kRecordColumns / info.elements * info.bytes),
                   std::min<std::int64_t>(blocks::kChunkParts, x.parts - chunk * blocks::kChunkParts), panel);
    kernels.add_panel(type, panel, x, chunk, 0, x.rows, sums.data(), kPackedRows);
  }
  return sums;
}

TEST_P(BlockProducts, EveryInstructionSetMatchesTheReference) {
  constexpr std::int64_t kRows = 15;
  for (const std::int64_t cols :
       {std::max<std::int64_t>(96, block_type_info(GetParam()).elements), std::int64_t{1024}}) {
    const BlockCase w = random_block_case(GetParam(), kPackedRows, cols, 3);
    const HostTensor x = random_tensor(ir::DType::kFloat32, {kRows, cols}, 1);
    std::vector<blocks::Input> inputs(blocks::input_bytes(kRows, cols) / sizeof(blocks::Input));
    for (std::int64_t r = 0; r < kRows; ++r)
      blocks::make_inputs(x.bytes.data() + r * cols * 4, x.dtype, cols, kRows, r, inputs.data());
    const blocks::Inputs rows{.at = inputs.data(), .rows = kRows, .parts = cols / kPackedColumns};
    const std::vector<double> rounded = rounded_to_eight_bits(x);
    for (const blocks::BlockKernels* kernels : kernels_of_machine()) {
      const std::vector<float> few = multiply(*kernels, GetParam(), w, rows, false);
      const std::vector<float> many = multiply(*kernels, GetParam(), w, rows, true);
      EXPECT_EQ(std::memcmp(few.data(), many.data(), few.size() * sizeof(float)), 0)
          << kernels->name << ": sums depend on the number of rows";
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t n = 0; n < kPackedRows; ++n) {
          double sum = 0;
          double magnitudes = 0;
          for (std::int64_t k = 0; k < cols; ++k) {
            const double product =
                rounded[static_cast<std::size_t>(r * cols + k)] * w.numbers[static_cast<std::size_t>(n * cols + k)];
            sum += product;
            magnitudes += std::abs(product);
          }
          // The tolerance is relative to the magnitudes of all products, because the products with minima may cancel
          // the other products.
          ASSERT_NEAR(few[static_cast<std::size_t>(r * kPackedRows + n)], sum, 4e-6 * magnitudes + 1e-7)
              << kernels->name << ", row " << r << ", column " << n;
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BlockProducts, ::testing::ValuesIn(packed_types()),
                         [](const auto& c) { return test_name_of(c.param); });

TEST(BlockInputs, ValuesThatAreNotFiniteMakeTheirSumsNan) {
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(64, 1.0F);
    x[40] = value;
    std::vector<blocks::Input> inputs(blocks::kChunkParts);
    blocks::make_inputs(reinterpret_cast<const std::byte*>(x.data()), ir::DType::kFloat32, 64, 1, 0, inputs.data());
    EXPECT_EQ(inputs[0].scale, 1.0F / 127.0F);
    EXPECT_EQ(inputs[0].values[0], 127);
    EXPECT_TRUE(std::isnan(inputs[1].scale));
    EXPECT_TRUE(std::isnan(inputs[1].sum));
  }
}

TEST(BlockInputs, ValuesAreRoundedToTheNearestStep) {
  for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16, ir::DType::kFloat16}) {
    const HostTensor x = random_tensor(dtype, {5, 288}, 1);
    const std::vector<double> rounded = rounded_to_eight_bits(x);
    for (std::int64_t first = 0; first < x.size(); first += 32) {
      double greatest = 0;
      for (std::int64_t i = first; i < first + 32; ++i) greatest = std::max(greatest, std::abs(x.at(i)));
      for (std::int64_t i = first; i < first + 32; ++i)
        ASSERT_NEAR(rounded[static_cast<std::size_t>(i)], x.at(i), greatest / 127 * 0.5001) << "value " << i;
    }
  }
}

TEST(BlockInputs, TinyValuesBecomeZeros) {
  std::vector<float> x(32, 1e-40F);
  std::vector<blocks::Input> inputs(blocks::kChunkParts);
  blocks::make_inputs(reinterpret_cast<const std::byte*>(x.data()), ir::DType::kFloat32, 32, 1, 0, inputs.data());
  EXPECT_EQ(inputs[0].values[0], 0);
  EXPECT_EQ(inputs[0].sum, 0.0F);
}

}  // namespace
}  // namespace tessera::testing
