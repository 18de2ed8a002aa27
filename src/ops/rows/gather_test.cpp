// Catches: reads outside the matrix if padding has a row number that does not exist; rows in the wrong order.
#include "tessera/ops/rows/gather.h"

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

TEST(Gather, CopiesRowsAndZerosForRowsOutside) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt32}) {
    const HostTensor x = testing::random_tensor(dtype, {5, 33}, 1, 0, 100);
    const std::vector<std::int32_t> rows{4, 0, 0, -1, 5, 2, 1 << 30};
    const auto out = testing::run_op(kGatherRows, kGatherRowsCpu, {x, int_tensor({7}, rows)});
    for (std::int64_t r = 0; r < 7; ++r) {
      const std::int32_t row = rows[static_cast<std::size_t>(r)];
      for (std::int64_t i = 0; i < 33; ++i)
        ASSERT_EQ(out.results[0].at(r * 33 + i), row >= 0 && row < 5 ? x.at(row * 33 + i) : 0) << "row " << row;
    }
  }
}

TEST(Gather, AcceptsEmptyInputsAndResults) {
  const HostTensor none = testing::random_tensor(DType::kFloat32, {0, 4}, 1);
  const HostTensor some = testing::random_tensor(DType::kFloat32, {3, 4}, 1);
  EXPECT_EQ(testing::run_op(kGatherRows, kGatherRowsCpu, {some, int_tensor({0}, {})}).results[0].size(), 0);
  EXPECT_EQ(testing::run_op(kGatherRows, kGatherRowsCpu, {none, int_tensor({1}, {0})}).results[0].values(),
            std::vector<double>(4, 0.0));
}

TEST(Gather, RowsAreIndependent) {
  const HostTensor x = testing::random_tensor(DType::kBFloat16, {64, 1024}, 1);
  std::vector<std::int32_t> rows(64);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(63 - i);
  testing::expect_rows_independent(kGatherRows, kGatherRowsCpu, {x, int_tensor({64}, rows)}, {1});
}

TEST(Gather, RefusesUnsupportedOperands) {
  const ir::Type x{DType::kBFloat16, {Symbol::kTokens, 64}};
  EXPECT_EQ(testing::infer_types(kGatherRows, {x, {DType::kInt32, {Symbol::kRows}}}).value()[0].to_string(),
            "bf16[R, 64]");
  EXPECT_THAT(infer_error(kGatherRows, {x, {DType::kInt64, {4}}}), HasSubstr("rows is i64[4]; it must be i32[4]"));
  EXPECT_THAT(infer_error(kGatherRows, {x, {DType::kInt32, {4, 1}}}), HasSubstr("must have 1 dimensions"));
  EXPECT_THAT(infer_error(kGatherRows, {{DType::kFloat32, {64}}, {DType::kInt32, {4}}}), HasSubstr("x is f32[64]"));
}

}  // namespace
}  // namespace tessera
