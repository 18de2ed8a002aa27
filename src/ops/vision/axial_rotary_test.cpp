// Catches: image rows and columns that are exchanged; heads that change although they must not be rotated; a rotation
// that pairs neighbouring values instead of values that are half a head apart.
#include "tessera/ops/vision/axial_rotary.h"

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
using testing::int_tensor;
using testing::random_tensor;

TEST(AxialTable, HasCosinesAndSinesOfBothCoordinates) {
  const HostTensor positions = int_tensor({4, 2}, {0, 0, 3, 1, 1, 3, 700, 90});
  const HostTensor frequencies = testing::make_tensor(DType::kFloat32, {3}, std::vector<double>{1, 0.25, 0.01});
  const auto out = testing::run_op(kAxialTable, kAxialTableCpu, {positions, frequencies});
  std::vector<double> expected;
  for (std::int64_t row = 0; row < 4; ++row)
    for (const bool sine : {false, true})
      for (std::int64_t axis = 0; axis < 2; ++axis)
        for (std::int64_t i = 0; i < 3; ++i) {
          const float angle = static_cast<float>(positions.at(2 * row + axis)) * static_cast<float>(frequencies.at(i));
          expected.push_back(sine ? std::sin(static_cast<double>(angle)) : std::cos(static_cast<double>(angle)));
        }
  testing::expect_close(out.results[0], expected, {1e-6, 1e-6}, "axial_table");
}

TEST(RotateHeads, TurnsTheFirstHeadsInPlace) {
  constexpr std::int64_t kRows = 5;
  for (const DType dtype : testing::kFloatingDTypes)
    for (const std::int64_t dim : {4, 16, 64, 72, 80, 128}) {
      const std::int64_t cols = 3 * 2 * dim;
      const HostTensor x = random_tensor(dtype, {kRows, cols}, 1);
      const HostTensor table = random_tensor(DType::kFloat32, {kRows, dim}, 2);
      const auto out = testing::run_op(kRotateHeads, kRotateHeadsCpu, {x, table}, {{"heads", std::int64_t{4}}});
      std::vector<double> expected = x.values();
      for (std::int64_t row = 0; row < kRows; ++row)
        for (std::int64_t head = 0; head < 4; ++head)
          for (std::int64_t i = 0; i < dim / 2; ++i) {
            const auto low = static_cast<std::size_t>(row * cols + head * dim + i);
            const auto high = low + static_cast<std::size_t>(dim / 2);
            const double a = expected[low];
            const double b = expected[high];
            const double cosine = table.at(row * dim + i);
            const double sine = table.at(row * dim + dim / 2 + i);
            expected[low] = a * cosine - b * sine;
            expected[high] = b * cosine + a * sine;
          }
      testing::expect_close(out.operands[0], expected, testing::tolerance(dtype, 2),
                            "rotate_heads " + std::to_string(dim));
      for (std::int64_t row = 0; row < kRows; ++row)
        for (std::int64_t i = 4 * dim; i < cols; ++i)
          ASSERT_EQ(out.operands[0].at(row * cols + i), x.at(row * cols + i)) << "a value was touched";
    }
}

TEST(AxialRotary, RefusesUnsupportedOperands) {
  const ir::Type positions{DType::kInt32, {Symbol::kVisionRows, 2}};
  EXPECT_EQ(testing::infer_types(kAxialTable, {positions, {DType::kFloat32, {20}}}).value()[0].to_string(),
            "f32[S, 80]");
  EXPECT_THAT(infer_error(kAxialTable, {{DType::kInt32, {Symbol::kVisionRows, 3}}, {DType::kFloat32, {20}}}),
              HasSubstr("positions is i32[S, 3]"));
  const ir::Type x{DType::kBFloat16, {Symbol::kVisionRows, 240}};
  const ir::Type table{DType::kFloat32, {Symbol::kVisionRows, 80}};
  EXPECT_THAT(infer_error(kRotateHeads, {x, table}, {{"heads", std::int64_t{4}}}), HasSubstr("heads = 4"));
  EXPECT_THAT(infer_error(kRotateHeads, {x, {DType::kFloat32, {Symbol::kTokens, 80}}}, {{"heads", std::int64_t{2}}}),
              HasSubstr("table is f32[T, 80]"));
  EXPECT_EQ(infer_error(kRotateHeads, {x, table}, {{"heads", std::int64_t{3}}}), "");
}

}  // namespace
}  // namespace tessera
