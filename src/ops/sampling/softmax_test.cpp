// Catches: overflow for large logits; precision that is lost in long sums; sums of earlier blocks that are not rescaled
// when the running max grows; rows that affect each other.
#include "tessera/ops/sampling/softmax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using testing::expect_close;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::random_tensor;

std::vector<double> reference(const HostTensor& x) {
  std::vector<double> y = x.values();
  const std::size_t n = static_cast<std::size_t>(x.dims[1]);
  for (std::size_t r = 0; r < y.size(); r += n) {
    const double greatest = *std::max_element(&y[r], &y[r] + n);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += std::exp(y[r + i] - greatest);
    for (std::size_t i = 0; i < n; ++i) y[r + i] = y[r + i] - greatest - std::log(sum);
  }
  return y;
}

void check(const HostTensor& x, const std::string& what) {
  const auto out = testing::run_op(kLogSoftmax, kLogSoftmaxCpu, {x});
  expect_close(out.results[0], reference(x), {2e-6, 2e-7}, what + " " + x.type().to_string());
}

TEST(LogSoftmax, MatchesTheReferenceForOddSizesAndLongRows) {
  for (const auto& [rows, n] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {5, 2049}, {2, 151936}, {0, 8}})
    check(random_tensor(DType::kFloat32, {rows, n}, 1, -12, 12), "log_softmax");
}

TEST(LogSoftmax, MatchesTheReferenceForLargeAndRisingValues) {
  check(random_tensor(DType::kFloat32, {3, 5000}, 1, -3e4, 3e4), "log_softmax, large");
  HostTensor rising = testing::poisoned_tensor(DType::kFloat32, {1, 10000});
  for (std::int64_t i = 0; i < 10000; ++i) rising.set(i, static_cast<double>(i) * 0.01);
  check(rising, "log_softmax, rising");
  check(testing::filled_tensor(DType::kFloat32, {1, 151936}, -7), "log_softmax, equal");
}

TEST(LogSoftmax, MaskedValuesStayMasked) {
  HostTensor x = random_tensor(DType::kFloat32, {1, 5000}, 1);
  const double inf = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < 2500; ++i) x.set(i, -inf);
  check(x, "log_softmax, half of it -inf");
  EXPECT_EQ(testing::run_op(kLogSoftmax, kLogSoftmaxCpu, {x}).results[0].at(7), -inf);
}

TEST(LogSoftmax, NaNAndInfinityGiveNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {std::nan(""), inf}) {
    HostTensor x = random_tensor(DType::kFloat32, {1, 5000}, 1);
    x.set(3000, bad);
    const auto out = testing::run_op(kLogSoftmax, kLogSoftmaxCpu, {x});
    EXPECT_TRUE(std::isnan(out.results[0].at(0))) << bad;
    EXPECT_TRUE(std::isnan(out.results[0].at(3000))) << bad;
  }
  const HostTensor none = testing::filled_tensor(DType::kFloat32, {1, 9}, -inf);
  EXPECT_TRUE(std::isnan(testing::run_op(kLogSoftmax, kLogSoftmaxCpu, {none}).results[0].at(0)));
}

TEST(LogSoftmax, RowsAreIndependent) {
  testing::expect_rows_independent(kLogSoftmax, kLogSoftmaxCpu, {random_tensor(DType::kFloat32, {9, 5000}, 1)}, {0});
}

TEST(LogSoftmax, RefusesWhatTheKernelCannotTake) {
  EXPECT_EQ(infer_error(kLogSoftmax, {{DType::kFloat32, {ir::Symbol::kRows, 10}}}), "");
  EXPECT_THAT(infer_error(kLogSoftmax, {{DType::kBFloat16, {4, 10}}}), HasSubstr("it must be f32[4, 10]"));
  EXPECT_THAT(infer_error(kLogSoftmax, {{DType::kFloat32, {10}}}), HasSubstr("must have 2 dimensions"));
}

}  // namespace
}  // namespace tessera
