// Catches: a 4-bit value that is read from another word or position than its layout says; a scale or zero point of
// another block, for whole matrices and for slices that begin within a block; scales, indices and shapes that are
// invalid but accepted.
#include "tessera/model/weights/quantised_read.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
StoredTensor tensor_of(const std::vector<T>& values, StoredDtype dtype, std::vector<std::int64_t> shape) {
  return {.name = "t", .dtype = dtype, .shape = std::move(shape), .data = std::as_bytes(std::span(values))};
}

SliceRuns all_of(std::int64_t elements) { return {.num_runs = 1, .run = elements, .stride = elements, .start = 0}; }

// Returns the bytes that read_nibbles() writes for `runs`.
std::vector<int> nibbles_of(const StoredTensor& words, const NibbleStorage& storage, const SliceRuns& runs) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(runs.num_elements()));
  EXPECT_TRUE(read_nibbles(words, storage, runs, bytes).ok());
  std::vector<int> values;
  for (const std::byte byte : bytes) values.push_back(std::to_integer<int>(byte));
  return values;
}

// In this word the value at position p is p. Each byte of a result therefore shows from which two positions it was
// made.
constexpr std::uint32_t kPlaces = 0x76543210;

TEST(ReadNibbles, RowsOfWordsAreInOrder) {
  const std::vector<std::uint32_t> words{kPlaces, ~kPlaces};
  const StoredTensor tensor = tensor_of(words, StoredDtype::kI32, {2, 1});
  const NibbleStorage storage{.rows = 2, .cols = 8};
  EXPECT_THAT(nibbles_of(tensor, storage, all_of(8)), ElementsAre(0x10, 0x32, 0x54, 0x76, 0xef, 0xcd, 0xab, 0x89));
}

TEST(ReadNibbles, ColumnsOfWordsBecomeRows) {
  // GPTQ's layout is [cols / 8, rows] = [1, 2].
  const std::vector<std::uint32_t> words{kPlaces, ~kPlaces};
  const StoredTensor tensor = tensor_of(words, StoredDtype::kI32, {1, 2});
  const NibbleStorage storage{.rows = 2, .cols = 8, .transposed = true, .packed_dim = 0};
  EXPECT_THAT(nibbles_of(tensor, storage, all_of(8)), ElementsAre(0x10, 0x32, 0x54, 0x76, 0xef, 0xcd, 0xab, 0x89));
}

TEST(ReadNibbles, InterleavedWordsAreReordered) {
  // AWQ's layout is [cols, rows / 8] = [2, 1]. The eight positions of a word belong to rows 0, 2, 4, 6, 1, 3, 5 and 7.
  const std::vector<std::uint32_t> words{kPlaces, kPlaces};
  const StoredTensor tensor = tensor_of(words, StoredDtype::kI32, {2, 1});
  const NibbleStorage storage{.rows = 8, .cols = 2, .transposed = true, .packed_dim = 1, .interleaved = true};
  EXPECT_THAT(nibbles_of(tensor, storage, all_of(8)), ElementsAre(0x00, 0x44, 0x11, 0x55, 0x22, 0x66, 0x33, 0x77));
}

TEST(ReadNibbles, ZerosAreThoseOfTheirBlock) {
  // The tensor contains the zero points of a matrix with 8 rows and groups of 4 columns: [groups, rows / 8] = [2, 1]
  // words. A stored value is the zero point minus one. The test requests a zero point for every 2 columns.
  const std::vector<std::uint32_t> words{kPlaces, ~kPlaces};
  const StoredTensor tensor = tensor_of(words, StoredDtype::kI32, {2, 1});
  const NibbleStorage storage{
      .rows = 8, .cols = 8, .transposed = true, .packed_dim = 1, .pairs = false, .add = 1, .block = 4, .step = 2};
  EXPECT_THAT(nibbles_of(tensor, storage, {.num_runs = 1, .run = 4, .stride = 4, .start = 4}),
              ElementsAre(2, 2, 15, 15))
      << "row 1";
  EXPECT_THAT(nibbles_of(tensor, storage, {.num_runs = 2, .run = 1, .stride = 4, .start = 2}), ElementsAre(16, 15));
}

std::vector<float> grid_of(const StoredTensor& scales, const GridStorage& storage, const SliceRuns& runs) {
  std::vector<float> values(static_cast<std::size_t>(runs.num_elements()));
  const Status read = read_grid(scales, storage, runs, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(read.ok()) << read.to_string();
  return values;
}

TEST(ReadGrid, FinerBlocksRepeatTheirScale) {
  // The matrix is [6, 8] with scales for blocks of 4 by 8. The test requests scales for blocks of 2 by 4.
  const std::vector<float> scales{1, 2};
  const GridStorage storage{.rows = 6, .cols = 8, .block_rows = 4, .block_cols = 8, .step_rows = 2, .step_cols = 4};
  const StoredTensor tensor = tensor_of(scales, StoredDtype::kF32, {2, 1});
  EXPECT_THAT(grid_of(tensor, storage, all_of(6)), ElementsAre(1, 1, 1, 1, 2, 2));
  EXPECT_THAT(grid_of(tensor, storage, {.num_runs = 2, .run = 1, .stride = 2, .start = 2}), ElementsAre(1, 2));
}

TEST(ReadGrid, TransposedScalesAndDivisorsAreTurnedRound) {
  const std::vector<float> scales{1, 2, 4, 8};
  GridStorage storage{.rows = 2, .cols = 8, .block_rows = 1, .block_cols = 4, .step_rows = 1, .step_cols = 4};
  storage.transposed = true;
  EXPECT_THAT(grid_of(tensor_of(scales, StoredDtype::kF32, {2, 2}), storage, all_of(4)), ElementsAre(1, 4, 2, 8));
  storage.reciprocal = true;
  EXPECT_THAT(grid_of(tensor_of(scales, StoredDtype::kF32, {2, 2}), storage, all_of(4)),
              ElementsAre(1, 0.25, 0.5, 0.125));
}

TEST(ReadGrid, ExponentsArePowersOfTwo) {
  const GridStorage storage{
      .rows = 1, .cols = 128, .block_rows = 1, .block_cols = 32, .step_rows = 1, .step_cols = 32, .exponents = true};
  for (const StoredDtype dtype : {StoredDtype::kU8, StoredDtype::kF8E8M0}) {
    const std::vector<std::uint8_t> exponents{127, 130, 0, 254};
    EXPECT_THAT(grid_of(tensor_of(exponents, dtype, {1, 4}), storage, all_of(4)),
                ElementsAre(1, 8, 0x1p-127F, 0x1p127F));
  }
  const std::vector<std::uint8_t> wrong{127, 255, 1, 2};
  std::vector<float> to(4);
  EXPECT_THAT(
      read_grid(tensor_of(wrong, StoredDtype::kU8, {1, 4}), storage, all_of(4), std::as_writable_bytes(std::span(to)))
          .message(),
      HasSubstr("tensor \"t\": scale 1 is nan"));
}

TEST(ReadGrid, WrongScalesAreNamed) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const GridStorage storage{.rows = 2, .cols = 4, .block_rows = 1, .block_cols = 4, .step_rows = 1, .step_cols = 4};
  std::vector<float> to(2);
  const auto error = [&](const std::vector<float>& scales) {
    return read_grid(tensor_of(scales, StoredDtype::kF32, {static_cast<std::int64_t>(scales.size())}), storage,
                     all_of(2), std::as_writable_bytes(std::span(to)))
        .message();
  };
  EXPECT_EQ(error({1, 2}), "");
  EXPECT_THAT(error({1, 0}), HasSubstr("tensor \"t\": scale 1 is 0; accepted: finite numbers above 0"));
  EXPECT_THAT(error({-1, 2}), HasSubstr("scale 0 is -1"));
  EXPECT_THAT(error({1, std::nanf("")}), HasSubstr("scale 1 is nan"));
  EXPECT_THAT(error({1, kInf}), HasSubstr("scale 1 is inf"));
  EXPECT_THAT(error({1, 2, 3}), HasSubstr("has 3 scales, of shape [3]; accepted: 2, for a matrix of 2 by 4"));
}

TEST(ReadIndices, IndicesOutsideOfTheTableAreNamed) {
  std::vector<std::int32_t> to(3);
  const auto error = [&](const std::vector<std::int32_t>& indices) {
    return read_indices(tensor_of(indices, StoredDtype::kI32, {3}), {.limit = 4}, all_of(3),
                        std::as_writable_bytes(std::span(to)))
        .message();
  };
  EXPECT_EQ(error({3, 0, 2}), "");
  EXPECT_THAT(to, ElementsAre(3, 0, 2));
  EXPECT_THAT(error({3, 0, 4}), HasSubstr("tensor \"t\": element 2 is 4; accepted: 0 to 3"));
  EXPECT_THAT(error({-1, 0, 2}), HasSubstr("element 0 is -1"));
}

TEST(CheckStored, SmallScalesAndShapesThatCannotBeAreNamed) {
  const std::vector<std::uint8_t> bytes{0x38};
  const StoredTensor scales = tensor_of(bytes, StoredDtype::kF8E4M3, {1});
  const auto error = [&](int bits) {
    const std::vector<std::byte> one{static_cast<std::byte>(bits)};
    return check_small_scales(scales, one).message();
  };
  EXPECT_EQ(error(0x38), "");
  EXPECT_THAT(error(0), HasSubstr("a scale is 0; accepted: numbers above 0"));
  EXPECT_THAT(error(0xb8), HasSubstr("a scale is -1"));
  EXPECT_THAT(error(0x7f), HasSubstr("a scale is nan"));

  const std::vector<std::byte> exponents{std::byte{0}, std::byte{254}};
  EXPECT_TRUE(check_exponents(scales, exponents).ok());
  EXPECT_THAT(check_exponents(scales, std::vector{std::byte{255}}).message(),
              HasSubstr("an exponent of a scale is 255, which is no number; accepted: 0 to 254"));

  const std::vector<std::int64_t> shape{64, 128};
  const StoredTensor stored = tensor_of(shape, StoredDtype::kI64, {2});
  EXPECT_TRUE(check_stored_shape(stored, 64, 128).ok());
  EXPECT_THAT(check_stored_shape(stored, 64, 64).message(), HasSubstr("says [64, 128]; accepted: [64, 64]"));
  EXPECT_THAT(check_stored_shape(scales, 64, 64).message(), HasSubstr("accepted: I64 of shape [2]"));
}

}  // namespace
}  // namespace tessera
