// Catches: a slice whose scales are computed only from its own elements, although a scale belongs to a block of the
// whole matrix; wrong values in a piece that begins within a row, within a block or at the second value of a byte;
// numbers of a stacked matrix that come from the wrong place; infinities that are rounded.
#include "tessera/model/weights/rounded_read.h"

#include <cmath>
#include <cstring>
#include <random>

#include "tessera/base/ceil_div.h"
#include "tessera/base/float16.h"
#include "tessera/base/float8.h"
#include "tessera/model/rounding/search_scales.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using RoundedContent = RoundedStorage::Content;
using RoundedTo = Rounding::Values;
using test::expect_error;

constexpr std::int64_t kRoundedRows = 150;
constexpr std::int64_t kRoundedCols = 2112;  // more than two tiles, and not a multiple of 128

std::vector<float> matrix_to_round() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> matrix(kRoundedRows * kRoundedCols);
  for (float& number : matrix) number = to_float(from_float<BFloat16>(normal(random)));
  for (std::int64_t i = 0; i < kRoundedCols; ++i) matrix[static_cast<std::size_t>(5 * kRoundedCols + i)] = 0.0F;
  return matrix;
}

StoredTensor numbers_tensor(const std::vector<float>& values, std::vector<std::int64_t> shape) {
  return {.name = "w", .dtype = StoredDtype::kF32, .shape = std::move(shape), .data = std::as_bytes(std::span(values))};
}

RoundedStorage rounded_storage(const Rounding& rounding) {
  return {.numbers = {.tensor_shape = {kRoundedRows, kRoundedCols}, .row_stride = kRoundedCols},
          .rows = kRoundedRows,
          .cols = kRoundedCols,
          .rounding = rounding,
          .step_rows = rounding.block_rows,
          .step_cols = rounding.block_cols};
}

std::int64_t rounded_bytes(const RoundedStorage& storage) {
  const bool bytes = storage.content == RoundedContent::kValues ||
                     (storage.content == RoundedContent::kScales && storage.rounding.has_factor());
  return bytes ? 1 : 4;
}

std::vector<std::int64_t> rounded_shape(const RoundedStorage& storage) {
  switch (storage.content) {
    case RoundedContent::kValues: return {kRoundedRows, kRoundedCols / storage.rounding.values_of_byte()};
    case RoundedContent::kScales:
      return {ceil_div(kRoundedRows, storage.step_rows), ceil_div(kRoundedCols, storage.step_cols)};
    case RoundedContent::kFactor: break;
  }
  return {kRoundedRows};
}

// Reads a slice of the values, of the scales or of the factor, as storage.content says. Calls read_rounded() for one
// piece after another.
std::vector<std::byte> read_all(const StoredTensor& tensor, const RoundedStorage& storage,
                                const TensorSlice& slice = {}, std::int64_t piece_elements = 1 << 20,
                                std::span<const float> importance = {}) {
  const SliceRuns runs = *slice_runs(rounded_shape(storage), slice);
  const std::int64_t bytes = rounded_bytes(storage);
  const float factor = *read_factor(tensor, storage);
  std::vector<std::byte> all(static_cast<std::size_t>(runs.num_elements() * bytes));
  for (std::int64_t first = 0; first < runs.num_elements();) {
    const SliceRuns piece = runs.piece(first, piece_elements);
    const Status status = read_rounded(tensor, storage, factor, piece,
                                       std::span(all).subspan(static_cast<std::size_t>(first * bytes),
                                                              static_cast<std::size_t>(piece.num_elements() * bytes)),
                                       importance);
    EXPECT_TRUE(status.ok()) << status.to_string();
    first += piece.num_elements();
  }
  return all;
}

// Returns the importances of the columns, from 0.01 to 100. An importance is the weight of rounding errors in a column.
std::vector<float> uneven_columns() {
  std::mt19937 random(8);
  std::uniform_real_distribution<float> exponent(-4.6F, 4.6F);
  std::vector<float> importance(kRoundedCols);
  for (float& number : importance) number = std::exp(exponent(random));
  return importance;
}

class RoundedRead : public ::testing::TestWithParam<Rounding> {};

TEST_P(RoundedRead, SlicesAndPiecesHaveTheWholeMatrixsValues) {
  const std::vector<float> matrix = matrix_to_round();
  const StoredTensor tensor = numbers_tensor(matrix, {kRoundedRows, kRoundedCols});
  for (const RoundedContent content : {RoundedContent::kValues, RoundedContent::kScales, RoundedContent::kFactor}) {
    RoundedStorage storage = rounded_storage(GetParam());
    storage.content = content;
    const std::vector<std::int64_t> shape = rounded_shape(storage);
    const std::vector<std::byte> whole = read_all(tensor, storage);
    const auto bytes = static_cast<std::size_t>(rounded_bytes(storage));
    std::vector<TensorSlice> slices{{}, {.dim = 0, .begin = shape[0] / 3, .size = ceil_div(shape[0], 2)}};
    if (shape.size() == 2) slices.push_back({.dim = 1, .begin = shape[1] / 3, .size = ceil_div(shape[1], 2)});
    for (const TensorSlice& slice : slices) {
      for (const std::int64_t piece : {13, 700, 1 << 20}) {
        const SliceRuns runs = *slice_runs(shape, slice);
        const std::vector<std::byte> got = read_all(tensor, storage, slice, piece);
        for (std::int64_t i = 0; i < runs.num_elements(); ++i) {
          const auto from = static_cast<std::size_t>(runs.start + i / runs.run * runs.stride + i % runs.run) * bytes;
          ASSERT_EQ(std::memcmp(&got[static_cast<std::size_t>(i) * bytes], &whole[from], bytes), 0)
              << "element " << i << " in pieces of " << piece;
        }
      }
    }
  }
}

TEST_P(RoundedRead, ATransposedMatrixOfAStackIsTheSame) {
  const std::vector<float> matrix = matrix_to_round();
  // The stacked tensor has the shape [2, cols, rows]. The test reads the second of its two matrices.
  std::vector<float> stack(2 * matrix.size(), 1e6F);
  for (std::int64_t r = 0; r < kRoundedRows; ++r)
    for (std::int64_t c = 0; c < kRoundedCols; ++c)
      stack[static_cast<std::size_t>(kRoundedRows * kRoundedCols + c * kRoundedRows + r)] =
          matrix[static_cast<std::size_t>(r * kRoundedCols + c)];
  for (const RoundedContent content : {RoundedContent::kValues, RoundedContent::kScales, RoundedContent::kFactor}) {
    RoundedStorage plain = rounded_storage(GetParam());
    plain.content = content;
    RoundedStorage strided = plain;
    strided.numbers = {.tensor_shape = {2, kRoundedCols, kRoundedRows},
                       .offset = kRoundedRows * kRoundedCols,
                       .row_stride = 1,
                       .col_stride = kRoundedRows};
    EXPECT_EQ(read_all(numbers_tensor(stack, {2, kRoundedCols, kRoundedRows}), strided),
              read_all(numbers_tensor(matrix, {kRoundedRows, kRoundedCols}), plain));
  }
}

TEST_P(RoundedRead, InfinitiesAndNanAreErrorsThatNameTheElement) {
  for (const float wrong : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> matrix = matrix_to_round();
    matrix[3 * kRoundedCols + 1500] = wrong;
    const StoredTensor tensor = numbers_tensor(matrix, {kRoundedRows, kRoundedCols});
    const RoundedStorage storage = rounded_storage(GetParam());
    const std::int64_t elements = kRoundedRows * kRoundedCols / storage.rounding.values_of_byte();
    std::vector<std::byte> to(static_cast<std::size_t>(elements));
    const SliceRuns all{.num_runs = 1, .run = elements, .stride = elements, .start = 0};
    const std::vector<std::string> parts{"\"w\"", std::to_string(3 * kRoundedCols + 1500), "accepted: finite numbers"};
    expect_error(read_rounded(tensor, storage, 1.0F, all, to), StatusCode::kInvalidArgument, parts);
    if (storage.rounding.has_factor())
      expect_error(read_factor(tensor, storage).status(), StatusCode::kInvalidArgument, parts);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundedRead,
                         ::testing::Values(Rounding{RoundedTo::kE4M3, 128, 128},
                                           Rounding{RoundedTo::kInt8, 1, kRoundedCols},
                                           Rounding{RoundedTo::kInt4, 1, 64}, Rounding{RoundedTo::kInt4, 1, 32},
                                           Rounding{RoundedTo::kE2M1, 1, 16}));

// Each column has its own importance. A matrix that is read in pieces must have the same values and scales as a matrix
// that is read at once.
TEST(RoundedRead, PiecesHaveTheSearchedScalesOfTheMatrix) {
  const std::vector<float> matrix = matrix_to_round();
  const StoredTensor tensor = numbers_tensor(matrix, {kRoundedRows, kRoundedCols});
  const std::vector<float> importance = uneven_columns();
  for (const Rounding& rounding : {Rounding{RoundedTo::kInt4, 1, 64}, Rounding{RoundedTo::kE2M1, 1, 16}}) {
    RoundedStorage storage = rounded_storage(rounding);
    storage.content = RoundedContent::kScales;
    const std::vector<std::byte> scales = read_all(tensor, storage, {}, 1 << 20, importance);
    EXPECT_EQ(read_all(tensor, storage, {}, 13, importance), scales);
    EXPECT_NE(read_all(tensor, storage), scales);
    const auto across = static_cast<std::size_t>(kRoundedCols / rounding.block_cols);
    const float factor = *read_factor(tensor, storage);
    for (const std::size_t row : {std::size_t{0}, std::size_t{77}}) {
      const std::span x = std::span(matrix).subspan(row * kRoundedCols, kRoundedCols);
      std::vector<std::uint32_t> bits(x.size());
      raise_to_magnitudes(x, bits);
      std::vector<std::uint32_t> greatest(across);
      raise_to_columns(bits, 0, rounding.block_cols, greatest);
      std::vector<float> expected(across);
      block_scales(rounding.values, greatest, factor, expected);
      search_scales(rounding, factor, x, importance, expected);
      for (std::size_t i = 0; i < across; ++i) {
        const std::byte* at = &scales[(row * across + i) * (rounding.has_factor() ? 1 : sizeof(float))];
        float scale = to_float(Float8E4M3{std::to_integer<std::uint8_t>(*at)});
        if (!rounding.has_factor()) std::memcpy(&scale, at, sizeof scale);
        ASSERT_EQ(scale, expected[i]) << "scale " << i << " of row " << row;
      }
    }
    storage.content = RoundedContent::kValues;
    EXPECT_EQ(read_all(tensor, storage, {}, 700, importance), read_all(tensor, storage, {}, 1 << 20, importance));
  }
}

TEST(RoundedRead, ScalesOfSmallerBlocksRepeatTheirBlocks) {
  const std::vector<float> matrix = matrix_to_round();
  const StoredTensor tensor = numbers_tensor(matrix, {kRoundedRows, kRoundedCols});
  RoundedStorage storage = rounded_storage({RoundedTo::kE4M3, 128, 128});
  storage.content = RoundedContent::kScales;
  const std::vector<std::byte> blocks = read_all(tensor, storage);
  storage.step_rows = 32;
  storage.step_cols = 64;
  const std::vector<std::byte> steps = read_all(tensor, storage);
  const std::int64_t across = ceil_div(kRoundedCols, 64);
  for (std::int64_t i = 0; i < ceil_div(kRoundedRows, 32); ++i)
    for (std::int64_t j = 0; j < across; ++j)
      ASSERT_EQ(std::memcmp(&steps[static_cast<std::size_t>(i * across + j) * 4],
                            &blocks[static_cast<std::size_t>(i / 4 * ceil_div(kRoundedCols, 128) + j / 2) * 4], 4),
                0)
          << i << ", " << j;
}

}  // namespace
}  // namespace tessera
