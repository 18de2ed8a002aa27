// Catches: products with the weight of another row; reads of rows outside the table; sums that are accumulated in the
// storage type instead of float32.
#include "tessera/ops/rows/weighted_rows.h"

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

TEST(WeightedRows, AddsRowsTimesWeights) {
  const std::vector<std::int32_t> rows{0, 1, 2, 3, 4, 4, 4, 4, -1, 5, 2, 1 << 30};
  for (const DType dtype : testing::kFloatingDTypes)
    for (const std::int64_t n : {1, 33, 1152}) {
      const HostTensor table = random_tensor(dtype, {5, n}, 1);
      const HostTensor weights = random_tensor(DType::kFloat32, {3, 4}, 2, 0, 1);
      const auto out = testing::run_op(kWeightedRows, kWeightedRowsCpu, {table, int_tensor({3, 4}, rows), weights});
      std::vector<double> expected;
      for (std::int64_t row = 0; row < 3; ++row)
        for (std::int64_t i = 0; i < n; ++i) {
          double sum = 0;
          for (std::int64_t k = 0; k < 4; ++k) {
            const std::int32_t from = rows[static_cast<std::size_t>(row * 4 + k)];
            if (from >= 0 && from < 5) sum += table.at(from * n + i) * weights.at(row * 4 + k);
          }
          expected.push_back(sum);
        }
      // Weights and products are rounded to the type, as a framework would store them.
      testing::Tolerance allowed = testing::tolerance(dtype, 3);
      if (dtype != DType::kFloat32) allowed.absolute = 3 * allowed.relative;
      testing::expect_close(out.results[0], expected, allowed, "weighted_rows " + std::to_string(n));
    }
}

TEST(WeightedRows, RowsAreIndependent) {
  std::vector<std::int32_t> rows;
  for (std::int32_t i = 0; i < 36; ++i) rows.push_back(i * 7 % 16);
  testing::expect_rows_independent(kWeightedRows, kWeightedRowsCpu,
                                   {random_tensor(DType::kBFloat16, {16, 64}, 1), int_tensor({9, 4}, rows),
                                    random_tensor(DType::kFloat32, {9, 4}, 2)},
                                   {1, 2});
}

TEST(WeightedRows, RefusesWhatKernelsCannotTake) {
  const ir::Type table{DType::kBFloat16, {100, 64}};
  const ir::Type rows{DType::kInt32, {Symbol::kVisionRows, 4}};
  const ir::Type weights{DType::kFloat32, {Symbol::kVisionRows, 4}};
  EXPECT_EQ(testing::infer_types(kWeightedRows, {table, rows, weights}).value()[0].to_string(), "bf16[S, 64]");
  EXPECT_THAT(infer_error(kWeightedRows, {table, rows, {DType::kFloat32, {Symbol::kVisionRows, 3}}}),
              HasSubstr("weights is f32[S, 3]"));
  EXPECT_THAT(infer_error(kWeightedRows, {{DType::kInt32, {100, 64}}, rows, weights}), HasSubstr("table"));
}

}  // namespace
}  // namespace tessera
