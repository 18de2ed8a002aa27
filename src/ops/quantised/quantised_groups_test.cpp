// Tests products with int4 weights in which the sum of each group is multiplied by the group's scale, so that no weight
// needs rounding. Catches: weights or scales that are rounded; a scale or zero point of another group; and a stage of
// the ring buffer in shared memory that is read too early or too late.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/quantised/quantised_linear.h"
#include "tessera/ops/quantised/quantised_test_util.h"
#include "tessera/ops/testing/device_calls.h"

namespace tessera::testing {
namespace {

using ir::DType;

class GroupSums : public ::testing::TestWithParam<Int4Sizes> {
 protected:
  void SetUp() override {
    if (!on_cuda()) GTEST_SKIP() << "only CUDA's kernel applies scales to sums";
  }
};

// The residual nearly cancels each sum, so that the rounding of the result does not hide the errors of the sum. A
// kernel that rounds weights to 16 bits would fail.
TEST_P(GroupSums, WeightsAreNotRounded) {
  const Int4Sizes& c = GetParam();
  const QuantisedCase w = random_quantised(c.format(), c.n, c.k, 3);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<HostTensor> operands{random_tensor(dtype, {c.m, c.k}, 1)};
    operands.insert(operands.end(), w.operands.begin(), w.operands.end());
    HostTensor residual = random_tensor(dtype, {c.m, c.n}, 5);
    const std::vector<double> x = operands[0].values();
    std::vector<double> sums;
    std::vector<double> magnitudes;
    for (std::int64_t row = 0; row < c.m; ++row)
      for (std::int64_t column = 0; column < c.n; ++column) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t i = 0; i < c.k; ++i) {
          const double product =
              x[static_cast<std::size_t>(row * c.k + i)] * w.values[static_cast<std::size_t>(column * c.k + i)];
          sum += product;
          magnitude += std::abs(product);
        }
        residual.set(row * c.n + column, -sum);
        sums.push_back(sum);
        magnitudes.push_back(magnitude);
      }
    operands.push_back(residual);
    const OpOutcome out =
        run_op(kQuantisedLinear, kQuantisedLinearCpu, operands, attributes_of(c.format(), false, true));
    for (std::int64_t i = 0; i < c.m * c.n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double expected = sums[at] + residual.at(i);
      ASSERT_NEAR(out.results[0].at(i), expected, 0x1p-8 * std::abs(expected) + 0x1p-17 * magnitudes[at])
          << "row " << i / c.n << ", column " << i % c.n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GroupSums,
                         ::testing::Values(Int4Sizes{33, 136, 1152, true}, Int4Sizes{40, 136, 128, false},
                                           Int4Sizes{64, 264, 2048, false}, Int4Sizes{65, 136, 1152, false},
                                           Int4Sizes{96, 264, 2048, true}, Int4Sizes{97, 136, 1280, true},
                                           Int4Sizes{128, 264, 2048, false}));

// Each block has more stages than its ring has slots. With 28 672 rows of w, two blocks share x. With 4 096, blocks
// split k.
TEST(GroupSumsRing, RepeatedProductsHaveTheSameBits) {
  if (!on_cuda()) GTEST_SKIP() << "only CUDA's kernel applies scales to sums";
  for (const std::int64_t m : {64, 96, 128})
    for (const Int4Sizes& c : {Int4Sizes{m, 28672, 4096, false}, Int4Sizes{m, 4096, 14336, true}})
      expect_same_bits(c, 100);
}

}  // namespace
}  // namespace tessera::testing
