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

struct GroupSizes {
  std::int64_t m, n, k;
  bool zeros;
};

QuantisedFormat group_format(const GroupSizes& c) {
  return {.values = QuantisedFormat::Values::kInt4, .group_rows = 1, .group_cols = 128, .zeros = c.zeros};
}

ir::Attributes group_attributes(const GroupSizes& c, bool residual) {
  ir::Attributes attributes = group_format(c).attributes();
  attributes.emplace_back("bias", false);
  attributes.emplace_back("residual", residual);
  return attributes;
}

class GroupSums : public ::testing::TestWithParam<GroupSizes> {
 protected:
  void SetUp() override {
    if (!on_cuda()) GTEST_SKIP() << "only CUDA's kernel applies scales to sums";
  }
};

// The residual nearly cancels each sum, so that the rounding of the result does not hide the errors of the sum. A
// kernel that rounds weights to 16 bits would fail.
TEST_P(GroupSums, WeightsAreNotRounded) {
  const GroupSizes& c = GetParam();
  const QuantisedCase w = random_quantised(group_format(c), c.n, c.k, 3);
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
    const OpOutcome out = run_op(kQuantisedLinear, kQuantisedLinearCpu, operands, group_attributes(c, true));
    for (std::int64_t i = 0; i < c.m * c.n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double expected = sums[at] + residual.at(i);
      ASSERT_NEAR(out.results[0].at(i), expected, 0x1p-8 * std::abs(expected) + 0x1p-17 * magnitudes[at])
          << "row " << i / c.n << ", column " << i % c.n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GroupSums,
                         ::testing::Values(GroupSizes{33, 136, 1152, true}, GroupSizes{40, 136, 128, false},
                                           GroupSizes{64, 264, 2048, false}, GroupSizes{65, 136, 1152, false},
                                           GroupSizes{96, 264, 2048, true}, GroupSizes{97, 136, 1280, true},
                                           GroupSizes{128, 264, 2048, false}));

// Each block has more stages than its ring has slots. With 28 672 rows of w, two blocks share x. With 4 096, blocks
// split k.
TEST(GroupSumsRing, RepeatedProductsHaveTheSameBits) {
  if (!on_cuda()) GTEST_SKIP() << "only CUDA's kernel applies scales to sums";
  for (const std::int64_t m : {64, 96, 128})
    for (const GroupSizes& c : {GroupSizes{m, 28672, 4096, false}, GroupSizes{m, 4096, 14336, true}}) {
      DeviceCalls calls;
      std::vector<TensorView> operands{calls.place(random_tensor(DType::kBFloat16, {c.m, c.k}, 1))};
      for (const HostTensor& part : random_quantised(group_format(c), c.n, c.k, 3, /*numbers=*/false).operands)
        operands.push_back(calls.weight(part));
      const DeviceCalls::Call& call = calls.add(kQuantisedLinear, operands, group_attributes(c, false));
      std::vector<std::byte> first;
      for (int run = 0; run < 100; ++run) {
        ASSERT_TRUE(calls.run_each().ok());
        const HostTensor y = *calls.download(call.results[0]);
        if (run == 0) first = y.bytes;
        ASSERT_EQ(y.bytes, first) << c.m << " rows, k " << c.k << ", run " << run;
      }
    }
}

}  // namespace
}  // namespace tessera::testing
