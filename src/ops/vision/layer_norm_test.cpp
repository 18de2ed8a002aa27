// Catches: a row that is normalised with another row's mean; a variance that is computed without subtracting the mean;
// a missing bias; rows that influence each other.
#include "tessera/ops/vision/layer_norm.h"

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

constexpr double kEps = 1e-6;

std::vector<double> reference(const HostTensor& x, const HostTensor& w, const HostTensor& b) {
  const std::int64_t n = x.dims.back();
  std::vector<double> y;
  for (std::int64_t row = 0; row < x.size() / n; ++row) {
    double mean = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += x.at(row * n + i) / static_cast<double>(n);
    double variance = 0;
    for (std::int64_t i = 0; i < n; ++i)
      variance += (x.at(row * n + i) - mean) * (x.at(row * n + i) - mean) / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i)
      y.push_back((x.at(row * n + i) - mean) / std::sqrt(variance + kEps) * w.at(i) + b.at(i));
  }
  return y;
}

TEST(LayerNorm, AgreesWithTheReference) {
  for (const DType dtype : testing::kFloatingDTypes)
    for (const std::int64_t n : {1, 5, 64, 1152, 4608, 9001}) {
      // The values lie far from zero, so a variance that is computed without subtracting the mean is wrong.
      const HostTensor x = random_tensor(dtype, {3, n}, 1, 2, 6);
      const HostTensor w = random_tensor(dtype, {n}, 2);
      const HostTensor b = random_tensor(dtype, {n}, 3);
      const auto out = testing::run_op(kLayerNorm, kLayerNormCpu, {x, w, b}, {{"eps", kEps}});
      testing::Tolerance allowed = testing::tolerance(dtype);
      allowed.absolute = 1e-5;
      testing::expect_close(out.results[0], reference(x, w, b), allowed, "layer_norm " + std::to_string(n));
    }
}

TEST(LayerNorm, RowsAreIndependent) {
  for (const DType dtype : testing::kFloatingDTypes)
    testing::expect_rows_independent(
        kLayerNorm, kLayerNormCpu,
        {random_tensor(dtype, {9, 72}, 1), random_tensor(dtype, {72}, 2), random_tensor(dtype, {72}, 3)}, {0},
        {{"eps", kEps}});
}

TEST(LayerNorm, AcceptsZeroRows) {
  const auto out = testing::run_op(kLayerNorm, kLayerNormCpu,
                                   {random_tensor(DType::kFloat32, {0, 8}, 1), random_tensor(DType::kFloat32, {8}, 2),
                                    random_tensor(DType::kFloat32, {8}, 3)},
                                   {{"eps", kEps}});
  EXPECT_EQ(out.results[0].size(), 0);
}

TEST(LayerNorm, RefusesUnsupportedOperands) {
  const ir::Type x{DType::kBFloat16, {Symbol::kVisionRows, 64}};
  const ir::Type w{DType::kBFloat16, {64}};
  EXPECT_EQ(testing::infer_types(kLayerNorm, {x, w, w}, {{"eps", 1e-6}}).value()[0].to_string(), "bf16[S, 64]");
  EXPECT_THAT(infer_error(kLayerNorm, {x, w, {DType::kBFloat16, {32}}}, {{"eps", 1e-6}}), HasSubstr("b is bf16[32]"));
  EXPECT_THAT(infer_error(kLayerNorm, {x, {DType::kFloat32, {64}}, w}, {{"eps", 1e-6}}), HasSubstr("w is f32[64]"));
  EXPECT_THAT(infer_error(kLayerNorm, {x, w, w}, {{"eps", 0.0}}), HasSubstr("eps"));
}

}  // namespace
}  // namespace tessera
