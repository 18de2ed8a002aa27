// Catches: products of rows in fixed point that are less precise than sixteen bits allow; a scale, zero point or sum of
// another group; a stage of the ring buffer in shared memory that is read too early or too late; a NaN that is lost or
// reaches other rows; scratch memory that is reserved for many rows and is too small for few.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/quantised/quantised_linear.h"
#include "tessera/ops/quantised/quantised_test_util.h"
#include "tessera/ops/testing/device_calls.h"

namespace tessera::testing {
namespace {

using ir::DType;

// Returns rows with three special groups. One group has only zeros. One group has a number that is far larger than the
// others. One group has numbers that are far smaller than those of other groups.
HostTensor uneven_rows(DType dtype, const Int4Sizes& c) {
  HostTensor x = random_tensor(dtype, {c.m, c.k}, 1);
  for (std::int64_t row = 0; row < c.m; ++row)
    for (std::int64_t i = 0; i < 128; ++i) {
      x.set(row * c.k + i, 0);
      x.set(row * c.k + 256 + i, x.at(row * c.k + 256 + i) * 0x1p-10);
    }
  for (std::int64_t row = 0; row < c.m; ++row) x.set(row * c.k + 128 + row, 100);
  return x;
}

class FixedPointRows : public ::testing::TestWithParam<Int4Sizes> {
 protected:
  void SetUp() override {
    if (!on_cuda()) GTEST_SKIP() << "only CUDA has a kernel of integers";
  }
};

TEST_P(FixedPointRows, SumsAreAsPreciseAsSixteenBits) {
  const Int4Sizes& c = GetParam();
  const QuantisedCase w = random_quantised(c.format(), c.n, c.k, 3);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<HostTensor> operands{uneven_rows(dtype, c)};
    operands.insert(operands.end(), w.operands.begin(), w.operands.end());
    operands.push_back(random_tensor(dtype, {c.n}, 4));
    operands.push_back(random_tensor(dtype, {c.m, c.n}, 5));
    const OpOutcome out =
        run_op(kQuantisedLinear, kQuantisedLinearCpu, operands, attributes_of(c.format(), true, true));
    std::vector<double> x = operands[0].values();
    std::vector<double> step;  // the distance between fixed-point numbers, for each group of each row
    for (std::int64_t first = 0; first < c.m * c.k; first += 128) {
      double largest = 0;
      for (std::int64_t i = first; i < first + 128; ++i)
        largest = std::max(largest, std::abs(x[static_cast<std::size_t>(i)]));
      step.push_back(largest / (127 * 256));
    }
    for (std::int64_t row = 0; row < c.m; ++row)
      for (std::int64_t column = 0; column < c.n; ++column) {
        double sum = operands[operands.size() - 2].at(column) + operands.back().at(row * c.n + column);
        double error = 0;
        for (std::int64_t i = 0; i < c.k; ++i) {
          const double weight = w.values[static_cast<std::size_t>(column * c.k + i)];
          sum += x[static_cast<std::size_t>(row * c.k + i)] * weight;
          error += 0.5 * step[static_cast<std::size_t>((row * c.k + i) / 128)] * std::abs(weight);
        }
        const double rounding = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
        ASSERT_NEAR(out.results[0].at(row * c.n + column), sum, error + rounding * (std::abs(sum) + 0.01))
            << "row " << row << ", column " << column;
      }
  }
}

// The matrices are so large that the kernel of integer products is used. Other kernels round weights, and would fail
// the test.
INSTANTIATE_TEST_SUITE_P(Sizes, FixedPointRows,
                         ::testing::Values(Int4Sizes{2, 24584, 512, true}, Int4Sizes{3, 8200, 1536, false},
                                           Int4Sizes{8, 840, 7680, true}, Int4Sizes{8, 34816, 512, false},
                                           Int4Sizes{9, 3080, 2048, true}, Int4Sizes{16, 136, 5120, false},
                                           Int4Sizes{17, 392, 4096, true}, Int4Sizes{20, 34816, 512, true},
                                           Int4Sizes{32, 1040, 1536, false}));

// Each block has more stages than its ring has slots.
TEST(FixedPointRing, RepeatedProductsHaveTheSameBits) {
  if (!on_cuda()) GTEST_SKIP() << "only CUDA has a kernel of integers";
  for (const Int4Sizes& c :
       {Int4Sizes{8, 4096, 14336, false}, Int4Sizes{8, 4096, 14336, true}, Int4Sizes{2, 4096, 14336, false},
        Int4Sizes{8, 28672, 4096, false}, Int4Sizes{16, 4096, 14336, false}, Int4Sizes{32, 4096, 14336, false}})
    expect_same_bits(c, 300);
}

TEST(FixedPointScratch, ManyRowsReserveEnoughForFewer) {
  if (!on_cuda()) GTEST_SKIP() << "only CUDA has a kernel of integers";
  const KernelDef* kernel = *test_kernels().get("quantised_linear");
  DeviceCalls calls;
  std::vector<TensorView> w;
  for (const HostTensor& part :
       random_quantised(Int4Sizes{1, 4096, 4096, true}.format(), 4096, 4096, 3, false).operands)
    w.push_back(calls.weight(part));
  std::size_t fewer = 0;
  for (const std::int64_t rows : {1, 2, 8, 9, 16, 17, 32, 33, 64, 1024, 3000}) {
    const Int4Sizes c{rows, 4096, 4096, true};
    std::vector<TensorView> operands{calls.place(random_tensor(DType::kBFloat16, {rows, c.k}, 1))};
    operands.insert(operands.end(), w.begin(), w.end());
    const std::size_t bytes = *kernel->workspace_bytes(
        calls.args(calls.add(kQuantisedLinear, operands, attributes_of(c.format(), false, false))));
    EXPECT_GE(bytes, fewer) << rows << " rows";
    fewer = bytes;
  }
  EXPECT_GT(fewer, 0);
}

TEST(FixedPointNan, NanReachesItsRowAlone) {
  if (!on_cuda()) GTEST_SKIP() << "only CUDA has a kernel of integers";
  const Int4Sizes c{4, 12296, 512, false};
  std::vector<HostTensor> operands{random_tensor(DType::kBFloat16, {c.m, c.k}, 1)};
  for (const HostTensor& part : random_quantised(c.format(), c.n, c.k, 3, /*numbers=*/false).operands)
    operands.push_back(part);
  const HostTensor clean =
      run_op(kQuantisedLinear, kQuantisedLinearCpu, operands, attributes_of(c.format(), false, false)).results[0];
  operands[0].set(2 * c.k + 200, std::numeric_limits<double>::quiet_NaN());
  const HostTensor y =
      run_op(kQuantisedLinear, kQuantisedLinearCpu, operands, attributes_of(c.format(), false, false)).results[0];
  for (std::int64_t i = 0; i < c.m * c.n; ++i) {
    if (i / c.n == 2) {
      EXPECT_TRUE(std::isnan(y.at(i)));
    } else {
      EXPECT_EQ(y.at(i), clean.at(i));
    }
  }
}

}  // namespace
}  // namespace tessera::testing
