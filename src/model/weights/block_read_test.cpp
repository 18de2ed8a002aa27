// Catches: blocks that come from the wrong rows or columns of a GGUF file's matrix; pieces of a matrix that are packed
// differently than the whole matrix.
#include "tessera/model/weights/block_read.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tessera/base/float16.h"
#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/quantised/blocks/dequantise.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera {
namespace {

constexpr std::int64_t kRows = 37;
constexpr std::int64_t kCols = 512;
constexpr std::int64_t kRowBytes = kCols / 256 * 144;

// A matrix of Q4_K in which neighbouring bytes differ.
class BlockRead : public ::testing::Test {
 protected:
  BlockRead() : bytes_(static_cast<std::size_t>(kRows * kRowBytes)) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
    // Sets the exponents of each block's two float16 numbers to 6, so that the numbers are finite.
    for (std::size_t block = 0; block < bytes_.size(); block += 144)
      for (const std::size_t at : {block + 1, block + 3})
        bytes_[at] = static_cast<std::uint8_t>((bytes_[at] & 0x83) | 0x18);
  }
  StoredTensor tensor(const RowArrangement& arrangement = {}) const {
    const StoredBlocks matrix(BlockType::kQ4_K, reinterpret_cast<const std::byte*>(bytes_.data()), kCols);
    return {.name = "w.weight",
            .shape = {kRows, kCols},
            .data = {},
            .made = make_rows({.matrices = {matrix}}, arrangement),
            .blocks = BlockType::kQ4_K};
  }
  // Returns a rectangle of the matrix as the file stores it. It covers `rows` rows, the first of which is row `row`. In
  // each row it covers `bytes` bytes, the first of which is byte `byte`.
  std::vector<std::uint8_t> plain(std::int64_t row, std::int64_t rows, std::int64_t byte, std::int64_t bytes) const {
    std::vector<std::uint8_t> part;
    for (std::int64_t r = row; r < row + rows; ++r)
      part.insert(part.end(), bytes_.begin() + r * kRowBytes + byte, bytes_.begin() + r * kRowBytes + byte + bytes);
    return part;
  }
  static std::vector<std::uint8_t> packed(const std::vector<std::uint8_t>& rows, std::int64_t count,
                                          std::int64_t cols) {
    std::vector<std::uint8_t> to(rows.size());
    pack_rows(BlockType::kQ4_K, rows.data(), count, cols, to.data());
    return to;
  }
  static Result<std::vector<std::uint8_t>> read(const StoredTensor& stored, const TensorSlice& slice,
                                                BlockType type = BlockType::kQ4_K) {
    const SliceRuns runs = TRY(slice_runs(std::vector{kRows, kRowBytes}, slice));
    std::vector<std::uint8_t> to(static_cast<std::size_t>(runs.num_elements()));
    TRY(read_blocks(stored, {.type = type, .rows = kRows, .cols = kCols}, runs, std::as_writable_bytes(std::span(to))));
    return to;
  }
  std::vector<std::uint8_t> bytes_;
};

TEST_F(BlockRead, RowsArePackedAsTheWhole) {
  EXPECT_EQ(*read(tensor(), {}), packed(plain(0, kRows, 0, kRowBytes), kRows, kCols));
  EXPECT_EQ(*read(tensor(), {.dim = 0, .begin = 5, .size = 32}), packed(plain(5, 32, 0, kRowBytes), 32, kCols));
}

TEST_F(BlockRead, ColumnsArePackedAsAMatrixOfTheirOwn) {
  EXPECT_EQ(*read(tensor(), {.dim = 1, .begin = 144, .size = 144}), packed(plain(0, kRows, 144, 144), kRows, 256));
}

TEST_F(BlockRead, RowsInAnotherOrderArePacked) {
  // The last 36 rows are permuted. They form two halves of 18 rows. The file stores row i of the first half just before
  // row i of the second half.
  const StoredTensor stored = tensor({.rows = {.first = 1, .a = 2, .b = 18}});
  std::vector<std::uint8_t> rows = plain(0, 1, 0, kRowBytes);
  for (const std::int64_t half : {0, 1})
    for (std::int64_t i = 0; i < 18; ++i) {
      const std::vector<std::uint8_t> row = plain(1 + 2 * i + half, 1, 0, kRowBytes);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  EXPECT_EQ(*read(stored, {}), packed(rows, kRows, kCols));
}

// Reads the codes and scales of a slice of columns, and computes numbers from them. These must be the numbers of the
// matrix.
TEST_F(BlockRead, CodesAndScalesGiveTheNumbersOfASlice) {
  const auto numbers_of = [&](std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t cols) {
    const std::vector<std::uint8_t> blocks = plain(row, rows, 0, kRowBytes);
    std::vector<float> all(static_cast<std::size_t>(rows * kCols));
    dequantise(BlockType::kQ4_K, blocks.data(), rows * kCols / 256, all.data());
    std::vector<float> numbers;
    for (std::int64_t r = 0; r < rows; ++r)
      numbers.insert(numbers.end(), all.begin() + r * kCols + first, all.begin() + r * kCols + first + cols);
    return numbers;
  };
  const auto read_as = [&](BlockStorage::Content content, std::int64_t per_block, std::int64_t element, int dim,
                           std::int64_t begin, std::int64_t size) {
    const BlockStorage storage{.type = BlockType::kQ4_K, .rows = kRows, .cols = kCols, .content = content};
    EXPECT_EQ(storage.per_block(), per_block);
    if (dim == 1) begin = begin * per_block / 256, size = size * per_block / 256;
    const SliceRuns runs =
        *slice_runs(std::vector{kRows, kCols / 256 * per_block}, {.dim = dim, .begin = begin, .size = size});
    std::vector<std::byte> to(static_cast<std::size_t>(runs.num_elements() * element));
    EXPECT_TRUE(read_blocks(tensor(), storage, runs, to).ok());
    return to;
  };
  for (const auto& [dim, begin, size] : {std::tuple<int, std::int64_t, std::int64_t>{0, 5, 20},
                                         {1, 256, 256},
                                         {1, 0, 32},
                                         {1, 192, 160},
                                         {1, 384, 96}}) {
    const std::vector<std::byte> codes = read_as(BlockStorage::Content::kCodes, 128, 1, dim, begin, size);
    const std::vector<std::byte> scales = read_as(BlockStorage::Content::kScales, 16, 2, dim, begin, size);
    const std::vector<float> expected =
        dim == 0 ? numbers_of(begin, size, 0, kCols) : numbers_of(0, kRows, begin, size);
    ASSERT_EQ(codes.size() * 2, expected.size());
    const auto* halves = reinterpret_cast<const Float16*>(scales.data());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto code = static_cast<float>(std::to_integer<unsigned>(codes[i / 2]) >> (i % 2 * 4) & 15U);
      const float scaled = code * to_float(halves[i / 32 * 2]);
      const float offset = to_float(halves[i / 32 * 2 + 1]);
      ASSERT_NEAR(scaled + offset, expected[i], 0x1p-11F * (std::abs(scaled) + std::abs(offset)) + 1e-7F) << i;
    }
  }
}

TEST_F(BlockRead, ScalesThatFloat16CannotHoldAreRefused) {
  bytes_[0] = 0xff, bytes_[1] = 0x7b;  // 65504, whose product with a group's scale exceeds float16
  const BlockStorage scales{
      .type = BlockType::kQ4_K, .rows = kRows, .cols = kCols, .content = BlockStorage::Content::kScales};
  const SliceRuns runs = *slice_runs(std::vector<std::int64_t>{kRows, 32}, {});
  std::vector<std::byte> to(static_cast<std::size_t>(kRows * 32 * 2));
  test::expect_error(read_blocks(tensor(), scales, runs, to), StatusCode::kInvalidArgument, {"w.weight", "65504"});
}

TEST_F(BlockRead, WrongTypesAndDividedBlocksAreRefused) {
  test::expect_error(read(tensor(), {}, BlockType::kQ5_K), StatusCode::kInvalidArgument, {"w.weight", "Q5_K"});
  test::expect_error(read(tensor(), {.dim = 1, .begin = 100, .size = 144}), StatusCode::kInvalidArgument,
                     {"w.weight", "144 elements from element 100 of row 0", "144 elements each"});
  const BlockStorage codes{
      .type = BlockType::kQ4_K, .rows = kRows, .cols = kCols, .content = BlockStorage::Content::kCodes};
  const SliceRuns half_a_group = *slice_runs(std::vector<std::int64_t>{kRows, 256}, {.dim = 1, .begin = 8, .size = 16});
  std::vector<std::byte> to(static_cast<std::size_t>(kRows * 16));
  test::expect_error(read_blocks(tensor(), codes, half_a_group, to), StatusCode::kInvalidArgument,
                     {"w.weight", "16 elements from element 8 of row 0", "16 elements each"});
  const StoredTensor columns = tensor({.cols = {.a = 2, .b = 256}});
  test::expect_error(read(columns, {}), StatusCode::kInvalidArgument, {"w.weight", "blocks of Q4_K"});
}

}  // namespace
}  // namespace tessera
