// Catches: a row that is multiplied by the gate of another row; a product that is rounded before it is added; rows that
// influence each other.
#include "tessera/ops/rows/add_gated.h"

#include <gmock/gmock.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

std::vector<HostTensor> make_operands(DType dtype, std::int64_t rows, std::int64_t n) {
  return {random_tensor(dtype, {rows, n}, 1), random_tensor(dtype, {rows, n}, 2),
          random_tensor(dtype, {rows, 1}, 3, -6, 6)};
}

std::vector<double> reference(const std::vector<HostTensor>& operands) {
  std::vector<double> y;
  const std::int64_t n = operands[0].dims[1];
  for (std::int64_t i = 0; i < operands[0].size(); ++i)
    y.push_back(operands[0].at(i) + operands[1].at(i) / (1 + std::exp(-operands[2].at(i / n))));
  return y;
}

TEST(AddGated, MatchesTheReference) {
  for (const DType dtype : kFloatingDTypes)
    for (const std::int64_t rows : {0, 1, 5, 70})
      for (const std::int64_t n : {1, 33, 64, 1000}) {
        const std::vector<HostTensor> operands = make_operands(dtype, rows, n);
        const OpOutcome out = run_op(kAddGated, kAddGatedCpu, operands);
        expect_close(out.results[0], reference(operands), tolerance(dtype),
                     "add_gated " + std::to_string(rows) + "x" + std::to_string(n));
      }
}

TEST(AddGated, RowsAreIndependent) {
  for (const DType dtype : kFloatingDTypes)
    expect_rows_independent(kAddGated, kAddGatedCpu, make_operands(dtype, 6, 40), {0, 1, 2});
}

TEST(AddGated, RefusesOperandsThatDoNotFit) {
  const ir::Type a{DType::kBFloat16, {ir::Symbol::kTokens, 64}};
  const ir::Type gate{DType::kBFloat16, {ir::Symbol::kTokens, 1}};
  EXPECT_EQ((*infer_types(kAddGated, {a, a, gate}))[0], a);
  EXPECT_THAT(infer_error(kAddGated, {a, a, a}), HasSubstr("gate is bf16[T, 64]; it must be bf16[T, 1]"));
  EXPECT_THAT(infer_error(kAddGated, {a, gate, gate}), HasSubstr("x is bf16[T, 1]"));
  EXPECT_THAT(infer_error(kAddGated, {gate, gate, {DType::kInt32, {ir::Symbol::kTokens, 1}}}),
              HasSubstr("gate is i32"));
}

}  // namespace
}  // namespace tessera::testing
