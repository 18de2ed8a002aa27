// Catches: an element of a transposed or quantised matrix that comes from the wrong place, has the wrong scale or is
// decoded wrongly; wrong results for a slice or piece that begins within a row; sizes that disagree but are accepted.
#include "tessera/model/weights/matrix_read.h"

#include <cmath>
#include <numeric>

#include "tessera/model/test_support.h"
#include "tessera/model/weights/stored_codec.h"

namespace tessera {
namespace {

using test::expect_error;

StoredTensor tensor_of(const char* name, StoredDtype dtype, std::vector<std::int64_t> shape, const auto& values) {
  return {.name = name, .dtype = dtype, .shape = std::move(shape), .data = std::as_bytes(std::span(values))};
}

// Reads a slice in pieces, one after the other.
std::vector<float> read_in_pieces(const SliceRuns& runs, std::int64_t piece_elements, const auto& read) {
  std::vector<float> floats(static_cast<std::size_t>(runs.num_elements()));
  for (std::int64_t first = 0; first < runs.num_elements();) {
    const SliceRuns piece = runs.piece(first, piece_elements);
    const auto to =
        std::span(floats).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(piece.num_elements()));
    const Status status = read(piece, std::as_writable_bytes(to));
    EXPECT_TRUE(status.ok()) << status.to_string();
    first += piece.num_elements();
  }
  return floats;
}

const TensorSlice kSlices[] = {{},
                               {.dim = 0, .begin = 3, .size = 20},
                               {.dim = 1, .begin = 500, .size = 1033},
                               {.dim = 1, .begin = 0, .size = 1},
                               {.dim = 0, .begin = 36, .size = 1}};

TEST(MatrixRead, TransposedElementsComeFromTheirPlace) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kCols = 2100;
  std::vector<float> stored(kRows * kCols);  // [cols, rows]
  std::iota(stored.begin(), stored.end(), 0.0F);
  const StoredTensor tensor = tensor_of("w", StoredDtype::kF32, {kCols, kRows}, stored);
  for (const TensorSlice& slice : kSlices)
    for (const std::int64_t piece : {7, 1500, 1 << 20}) {
      const SliceRuns runs = *slice_runs(std::vector{kRows, kCols}, slice);
      const std::vector<float> got = read_in_pieces(runs, piece, [&](const SliceRuns& part, std::span<std::byte> to) {
        return read_transposed(tensor, part, StoredDtype::kF32, to);
      });
      std::size_t at = 0;
      for (std::int64_t run = 0; run < runs.num_runs; ++run)
        for (std::int64_t i = 0; i < runs.run; ++i, ++at) {
          const std::int64_t element = runs.start + run * runs.stride + i;
          const std::int64_t row = element / kCols;
          const std::int64_t col = element % kCols;
          ASSERT_EQ(got[at], static_cast<float>(col * kRows + row)) << row << ", " << col << " in pieces of " << piece;
        }
    }
}

// The stacked tensor has the shape [3, 2100, 74]. The test takes every other column of the second [2100, 74] matrix,
// and reads the transpose of these columns.
TEST(MatrixRead, StridedElementsComeFromTheirPlace) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kCols = 2100;
  std::vector<float> stored(3 * kCols * 2 * kRows);
  std::iota(stored.begin(), stored.end(), 0.0F);
  const StoredTensor tensor = tensor_of("w", StoredDtype::kF32, {3, kCols, 2 * kRows}, stored);
  const StridedMatrix matrix{
      .rows = kRows, .cols = kCols, .offset = kCols * 2 * kRows + 1, .row_stride = 2, .col_stride = 2 * kRows};
  for (const TensorSlice& slice : kSlices)
    for (const std::int64_t piece : {7, 1500, 1 << 20}) {
      const SliceRuns runs = *slice_runs(std::vector{kRows, kCols}, slice);
      const std::vector<float> got = read_in_pieces(runs, piece, [&](const SliceRuns& part, std::span<std::byte> to) {
        return read_strided(tensor, matrix, part, StoredDtype::kF32, to);
      });
      std::size_t at = 0;
      for (std::int64_t run = 0; run < runs.num_runs; ++run)
        for (std::int64_t i = 0; i < runs.run; ++i, ++at) {
          const std::int64_t element = runs.start + run * runs.stride + i;
          const std::int64_t row = element / kCols;
          const std::int64_t col = element % kCols;
          ASSERT_EQ(got[at], static_cast<float>((kCols + col) * 2 * kRows + 1 + 2 * row)) << row << ", " << col;
        }
    }
  std::vector<float> one(1);
  const SliceRuns first{.num_runs = 1, .run = 1, .stride = 1, .start = 0};
  for (const StridedMatrix& outside :
       {StridedMatrix{.rows = 38, .cols = kCols, .offset = 2 * kCols * 2 * kRows, .row_stride = 2, .col_stride = 74},
        StridedMatrix{.rows = 1, .cols = 1, .offset = 3 * kCols * 2 * kRows},
        StridedMatrix{.rows = 1, .cols = 1, .offset = -1},
        StridedMatrix{.rows = std::int64_t{1} << 40, .cols = 2, .row_stride = std::int64_t{1} << 40}})
    expect_error(read_strided(tensor, outside, first, StoredDtype::kF32, std::as_writable_bytes(std::span(one))),
                 StatusCode::kInvalidArgument, {"\"w\"", "within its shape [3, 2100, 74]"});
}

TEST(MatrixRead, ScaledElementsHaveTheirBlocksScale) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kCols = 2100;
  std::vector<std::int8_t> stored(kRows * kCols);
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::int8_t>(i * 31 % 251);
  const StoredTensor tensor = tensor_of("w", StoredDtype::kI8, {kRows, kCols}, stored);
  const std::pair<std::int64_t, std::int64_t> blocks[] = {{kRows, kCols}, {1, kCols}, {16, 128}, {1, 1}, {64, 4096}};
  for (const auto& [block_rows, block_cols] : blocks) {
    const std::int64_t across = (kCols + block_cols - 1) / block_cols;
    std::vector<float> scales(static_cast<std::size_t>((kRows + block_rows - 1) / block_rows * across));
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.5F + static_cast<float>(i % 97);
    const StoredTensor scale = tensor_of("s", StoredDtype::kF32, {static_cast<std::int64_t>(scales.size())}, scales);
    for (const TensorSlice& slice : kSlices) {
      const SliceRuns runs = *slice_runs(tensor.shape, slice);
      const std::vector<float> got = read_in_pieces(runs, 1500, [&](const SliceRuns& part, std::span<std::byte> to) {
        return read_scaled(tensor, {.tensor = scale, .block_rows = block_rows, .block_cols = block_cols}, part,
                           StoredDtype::kF32, to);
      });
      std::size_t at = 0;
      for (std::int64_t run = 0; run < runs.num_runs; ++run)
        for (std::int64_t i = 0; i < runs.run; ++i, ++at) {
          const std::int64_t element = runs.start + run * runs.stride + i;
          const std::int64_t block = element / kCols / block_rows * across + element % kCols / block_cols;
          ASSERT_EQ(got[at], static_cast<float>(stored[static_cast<std::size_t>(element)]) *
                                 scales[static_cast<std::size_t>(block)])
              << element << " in blocks of " << block_rows << " by " << block_cols;
        }
    }
  }
}

// Computes a number from the definition of the FP8 formats, independently of the codec.
double fp8(int bits, int exponent_bits, int mantissa_bits, int bias) {
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

TEST(StoredCodec, DecodesEveryByteOfFp8) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<std::uint8_t>(bits);
    const float e4m3 = Codec<StoredDtype::kF8E4M3>::decode(byte);
    if ((bits & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(e4m3)) << bits;
    else
      EXPECT_EQ(static_cast<double>(e4m3), fp8(bits, 4, 3, 7)) << bits;
    const float e5m2 = Codec<StoredDtype::kF8E5M2>::decode(byte);
    if ((bits & 0x7c) == 0x7c)
      EXPECT_FALSE(std::isfinite(e5m2)) << bits;
    else
      EXPECT_EQ(static_cast<double>(e5m2), fp8(bits, 5, 2, 15)) << bits;
  }
}

TEST(MatrixRead, ConvertsWhatItReads) {
  const std::vector<std::uint8_t> stored = {0x38, 0xb8, 0x3c, 0x08};  // 1, -1, 1.5, 2^-6 in E4M3
  const std::vector<float> scale = {2.0F};
  const StoredTensor tensor = tensor_of("w", StoredDtype::kF8E4M3, {2, 2}, stored);
  const StoredTensor scales = tensor_of("s", StoredDtype::kF32, {}, scale);
  std::vector<std::uint16_t> got(4);
  ASSERT_TRUE(read_scaled(tensor, {.tensor = scales, .block_rows = 2, .block_cols = 2}, *slice_runs(tensor.shape, {}),
                          StoredDtype::kBF16, std::as_writable_bytes(std::span(got)))
                  .ok());
  EXPECT_EQ(got, (std::vector<std::uint16_t>{0x4000, 0xc000, 0x4040, 0x3d00}));
}

TEST(MatrixRead, RefusesShapesAndSizesThatDisagree) {
  const std::vector<std::int8_t> stored(12);
  const std::vector<float> scale(5);
  std::vector<float> to(12);
  const auto bytes = std::as_writable_bytes(std::span(to));
  const StoredTensor matrix = tensor_of("w", StoredDtype::kI8, {3, 4}, stored);
  const StoredTensor scales = tensor_of("s", StoredDtype::kF32, {5}, scale);
  const SliceRuns all = *slice_runs(matrix.shape, {});
  const auto scaled = [&](const StoredTensor& w, std::int64_t rows, std::int64_t cols, std::span<std::byte> dst) {
    return read_scaled(w, {.tensor = scales, .block_rows = rows, .block_cols = cols}, all, StoredDtype::kF32, dst);
  };
  expect_error(scaled(matrix, 1, 4, bytes), StatusCode::kInvalidArgument, {"\"s\" has 5 scales", "accepted: 3"});
  expect_error(scaled(matrix, 0, 4, bytes), StatusCode::kInvalidArgument, {"blocks of 0 by 4"});
  expect_error(scaled(tensor_of("w", StoredDtype::kI8, {12}, stored), 1, 1, bytes), StatusCode::kInvalidArgument,
               {"shape is [12]", "a matrix"});
  expect_error(scaled(tensor_of("w", StoredDtype::kI8, {3, 5}, stored), 1, 5, bytes), StatusCode::kInvalidArgument,
               {"12 bytes", "[3, 5]"});
  expect_error(scaled(tensor_of("w", StoredDtype::kBool, {3, 4}, stored), 1, 4, bytes), StatusCode::kUnimplemented,
               {"type BOOL", "I8"});
  const StoredTensor one = tensor_of("w", StoredDtype::kI8, {1, 5}, std::span(stored).first(5));
  expect_error(read_scaled(one, {.tensor = scales, .block_rows = 1, .block_cols = 1}, all, StoredDtype::kF32, bytes),
               StatusCode::kInvalidArgument, {"[1, 5]"});
  expect_error(read_transposed(matrix, all, StoredDtype::kF32, bytes.first(8)), StatusCode::kInvalidArgument,
               {"8 bytes of F32"});
  expect_error(read_transposed(matrix, all, StoredDtype::kI8, bytes.first(12)), StatusCode::kInvalidArgument,
               {"bytes of I8"});
}

}  // namespace
}  // namespace tessera
