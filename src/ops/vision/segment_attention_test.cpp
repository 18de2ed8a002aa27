// Catches: scores with keys of another image or window; a wrong mask at a tile's edge; heads that are mixed up; reads
// of elements past a head's end; reads of padding rows; partial results of several warps that are merged wrongly;
// results whose bits depend on other segments.
#include "tessera/ops/vision/segment_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::random_tensor;

// Returns the range of each row, if segments of these lengths follow one another. The range of a row after the last
// segment is empty.
HostTensor ranges_of(const std::vector<std::int64_t>& lengths, std::int64_t rows) {
  std::vector<std::int32_t> ranges;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i) {
      ranges.push_back(static_cast<std::int32_t>(begin));
      ranges.push_back(static_cast<std::int32_t>(begin + length));
    }
    begin += length;
  }
  ranges.resize(static_cast<std::size_t>(2 * rows), 0);
  return testing::int_tensor({rows, 2}, ranges);
}

std::vector<double> reference(const HostTensor& qkv, const HostTensor& ranges, std::int64_t heads) {
  const std::int64_t rows = qkv.dims[0];
  const std::int64_t width = qkv.dims[1] / 3;
  const std::int64_t dim = width / heads;
  std::vector<double> out(static_cast<std::size_t>(rows * width), 0.0);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto begin = std::max<std::int64_t>(0, ranges.raw<std::int32_t>(2 * row));
      const auto end = std::min<std::int64_t>(rows, ranges.raw<std::int32_t>(2 * row + 1));
      const auto value = [&](std::int64_t of, std::int64_t part, std::int64_t i) {
        return qkv.at((of * 3 + part) * width + head * dim + i);
      };
      std::vector<double> weights;
      double total = 0;
      for (std::int64_t key = begin; key < end; ++key) {
        double score = 0;
        for (std::int64_t i = 0; i < dim; ++i) score += value(row, 0, i) * value(key, 1, i);
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
        total += weights.back();
      }
      for (std::int64_t key = begin; key < end; ++key)
        for (std::int64_t i = 0; i < dim; ++i)
          out[static_cast<std::size_t>(row * width + head * dim + i)] +=
              weights[static_cast<std::size_t>(key - begin)] / total * value(key, 2, i);
    }
  return out;
}

testing::Tolerance allowed(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return {6e-3, 1e-2};
    case DType::kFloat16: return {1e-3, 2e-3};
    default: return {2e-6, 1e-5};
  }
}

void check(DType dtype, std::int64_t heads, std::int64_t dim, const std::vector<std::int64_t>& lengths,
           std::int64_t rows) {
  const HostTensor qkv = random_tensor(dtype, {rows, 3 * heads * dim}, static_cast<std::uint32_t>(rows + dim), -2, 2);
  const HostTensor ranges = ranges_of(lengths, rows);
  const auto out = testing::run_op(kSegmentAttention, kSegmentAttentionCpu, {qkv, ranges}, {{"heads", heads}});
  testing::expect_close(out.results[0], reference(qkv, ranges, heads), allowed(dtype),
                        "segment_attention " + std::to_string(rows) + " rows, heads of " + std::to_string(dim));
}

TEST(SegmentAttention, MatchesTheReferenceForEveryHeadSize) {
  for (const DType dtype : testing::kFloatingDTypes)
    for (const std::int64_t dim : {4, 16, 20, 64, 72, 80, 88, 128}) check(dtype, 2, dim, {48, 33, 1}, 82);
}

TEST(SegmentAttention, SegmentsOfAnyLength) {
  for (const DType dtype : testing::kFloatingDTypes) {
    check(dtype, 1, 80, {1}, 1);
    check(dtype, 3, 80, {64, 64, 64, 64}, 256);
    check(dtype, 2, 72, {4, 4, 16, 36, 64, 24, 60, 4}, 256);
    check(dtype, 1, 64, {200, 1, 130, 62}, 400);
    check(dtype, 2, 80, {}, 70);
  }
}

TEST(SegmentAttention, MatchesTheReferenceForManyRows) {
  check(DType::kBFloat16, 1, 80, {330, 64, 64, 70}, 560);
  check(DType::kFloat16, 1, 128, {64, 400}, 464);
}

// The number of heads sets the number of blocks, which decides how a GPU divides rows and keys among warps.
TEST(SegmentAttention, FewAndManyHeads) {
  for (const std::int64_t heads : {1, 24, 40, 80}) check(DType::kBFloat16, heads, 16, {150, 1, 49}, 203);
  for (const std::int64_t heads : {24, 40}) check(DType::kFloat16, heads, 72, {150, 1, 49}, 203);
}

// A segment's result does not depend on how the rows before and after it are divided into segments.
TEST(SegmentAttention, OtherSegmentsChangeNoBit) {
  constexpr std::int64_t kBegin = 100;
  constexpr std::int64_t kLength = 70;
  for (const DType dtype : testing::kFloatingDTypes)
    for (const std::int64_t heads : {1, 24, 40, 80}) {
      const HostTensor qkv = random_tensor(dtype, {200, 3 * heads * 16}, 3, -2, 2);
      const auto segment = [&](const std::vector<std::int64_t>& lengths) {
        const auto out = testing::run_op(kSegmentAttention, kSegmentAttentionCpu, {qkv, ranges_of(lengths, 200)},
                                         {{"heads", heads}});
        const auto row = static_cast<std::ptrdiff_t>(testing::row_bytes(out.results[0]));
        const auto first = out.results[0].bytes.begin() + kBegin * row;
        return std::vector<std::byte>(first, first + kLength * row);
      };
      const std::vector<std::byte> one = segment({kBegin, kLength, 30});
      EXPECT_EQ(one, segment({36, 64, kLength, 7, 23})) << heads << " heads";
      EXPECT_EQ(one, segment({1, 98, 1, kLength})) << heads << " heads";
    }
}

TEST(SegmentAttention, RangesPastTheRowsAreClipped) {
  const HostTensor qkv = random_tensor(DType::kFloat32, {9, 3 * 16}, 1);
  const HostTensor ranges =
      testing::int_tensor({9, 2}, {-5, 4, 0, 900, 3, 3, 8, 2, 0, 9, 0, 1, 8, 9, 1 << 30, 1 << 30, -1, -1});
  const auto out =
      testing::run_op(kSegmentAttention, kSegmentAttentionCpu, {qkv, ranges}, {{"heads", std::int64_t{1}}});
  testing::expect_close(out.results[0], reference(qkv, ranges, 1), allowed(DType::kFloat32), "cut ranges");
}

// Padding rows may hold anything, because the number of rows in images changes from run to run of a recorded graph.
TEST(SegmentAttention, PaddingChangesNoRow) {
  for (const DType dtype : testing::kFloatingDTypes) {
    HostTensor qkv = random_tensor(dtype, {150, 3 * 2 * 80}, 1);
    const HostTensor ranges = ranges_of({70, 31}, 150);
    const auto clean =
        testing::run_op(kSegmentAttention, kSegmentAttentionCpu, {qkv, ranges}, {{"heads", std::int64_t{2}}});
    std::fill(qkv.bytes.begin() + static_cast<std::ptrdiff_t>(101 * testing::row_bytes(qkv)), qkv.bytes.end(),
              std::byte{0xff});
    const auto poisoned =
        testing::run_op(kSegmentAttention, kSegmentAttentionCpu, {qkv, ranges}, {{"heads", std::int64_t{2}}});
    EXPECT_EQ(clean.results[0].bytes, poisoned.results[0].bytes);
  }
}

TEST(SegmentAttention, RefusesWhatKernelsCannotTake) {
  const ir::Type qkv{DType::kBFloat16, {Symbol::kVisionRows, 3 * 16 * 80}};
  const ir::Type ranges{DType::kInt32, {Symbol::kVisionRows, 2}};
  EXPECT_EQ(
      testing::infer_types(kSegmentAttention, {qkv, ranges}, {{"heads", std::int64_t{16}}}).value()[0].to_string(),
      "bf16[S, 1280]");
  EXPECT_THAT(infer_error(kSegmentAttention, {qkv, ranges}, {{"heads", std::int64_t{7}}}), HasSubstr("7 heads"));
  EXPECT_THAT(infer_error(kSegmentAttention, {qkv, ranges}, {{"heads", std::int64_t{8}}}), HasSubstr("160 values"));
  EXPECT_THAT(
      infer_error(kSegmentAttention, {qkv, {DType::kInt32, {Symbol::kTokens, 2}}}, {{"heads", std::int64_t{16}}}),
      HasSubstr("ranges is i32[T, 2]"));
}

}  // namespace
}  // namespace tessera
