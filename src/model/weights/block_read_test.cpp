// Catches: blocks of the wrong rows or columns of a GGUF file's matrix, and pieces of a matrix that are packed
// otherwise than the whole.
#include "tessera/model/weights/block_read.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera {
namespace {

constexpr std::int64_t kRows = 37;
constexpr std::int64_t kCols = 512;
constexpr std::int64_t kRowBytes = kCols / 256 * 144;

// A matrix of Q4_K whose bytes all differ from their neighbours'.
class BlockRead : public ::testing::Test {
 protected:
  BlockRead() : bytes_(static_cast<std::size_t>(kRows * kRowBytes)) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  }
  StoredTensor tensor(const RowArrangement& arrangement = {}) const {
    const StoredBlocks matrix(BlockType::kQ4_K, reinterpret_cast<const std::byte*>(bytes_.data()), kCols);
    return {.name = "w.weight",
            .shape = {kRows, kCols},
            .data = {},
            .made = make_rows({.matrices = {matrix}}, arrangement),
            .blocks = BlockType::kQ4_K};
  }
  // Returns the rows and bytes of a row as they lie in the file.
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
  // The last 36 rows are pairs, of which the first halves come first.
  const StoredTensor stored = tensor({.rows = {.first = 1, .a = 2, .b = 18}});
  std::vector<std::uint8_t> rows = plain(0, 1, 0, kRowBytes);
  for (const std::int64_t half : {0, 1})
    for (std::int64_t i = 0; i < 18; ++i) {
      const std::vector<std::uint8_t> row = plain(1 + 2 * i + half, 1, 0, kRowBytes);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  EXPECT_EQ(*read(stored, {}), packed(rows, kRows, kCols));
}

TEST_F(BlockRead, WrongTypesAndDividedBlocksAreRefused) {
  test::expect_error(read(tensor(), {}, BlockType::kQ5_K), StatusCode::kInvalidArgument, {"w.weight", "Q5_K"});
  test::expect_error(read(tensor(), {.dim = 1, .begin = 100, .size = 144}), StatusCode::kInvalidArgument,
                     {"w.weight", "bytes 100 to 244", "144 bytes each"});
  const StoredTensor columns = tensor({.cols = {.a = 2, .b = 256}});
  test::expect_error(read(columns, {}), StatusCode::kInvalidArgument, {"w.weight", "blocks of Q4_K"});
}

}  // namespace
}  // namespace tessera
