// Catches: a wrong mean, because elements are left out or the divisor is wrong; eps that is added in the wrong place; a
// weight that is applied to the wrong elements of a head; an add_rms_norm that normalises other values than the sum
// that it returns; rows that affect each other.
#include "tessera/ops/rows/norm.h"

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
using testing::tolerance;

constexpr double kEps = 1e-5;

// Normalises x [rows, w.size()] in double.
std::vector<double> reference(const std::vector<double>& x, const std::vector<double>& w) {
  std::vector<double> y(x.size());
  for (std::size_t r = 0; r < x.size(); r += w.size()) {
    double sum = 0;
    for (std::size_t i = 0; i < w.size(); ++i) sum += x[r + i] * x[r + i];
    const double factor = 1 / std::sqrt(sum / static_cast<double>(w.size()) + kEps);
    for (std::size_t i = 0; i < w.size(); ++i) y[r + i] = x[r + i] * factor * w[i];
  }
  return y;
}

std::vector<std::vector<std::int64_t>> shapes() {
  return {{1},       {67},      {1, 1},    {3, 7},     {5, 64},    {2, 3, 130},
          {9, 1024}, {2, 8191}, {3, 4096}, {2, 16384}, {1, 40000}, {0, 64}};
}

std::string title(const std::string& op, const HostTensor& x) { return op + " " + x.type().to_string(); }

TEST(Norm, RmsNormMatchesTheReference) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const auto& dims : shapes()) {
      const HostTensor x = random_tensor(dtype, dims, 1, -3, 3);
      const HostTensor w = random_tensor(dtype, {dims.back()}, 2, 0.5, 1.5);
      const auto out = testing::run_op(kRmsNorm, kRmsNormCpu, {x, w}, {{"eps", kEps}});
      expect_close(out.results[0], reference(x.values(), w.values()), tolerance(dtype, 2), title("rms_norm", x));
    }
  }
}

// The values are so small that eps decides the result.
TEST(Norm, EpsIsInsideTheRoot) {
  const HostTensor x = random_tensor(DType::kFloat32, {3, 64}, 1, -1e-3, 1e-3);
  const HostTensor w = testing::filled_tensor(DType::kFloat32, {64}, 1);
  const auto out = testing::run_op(kRmsNorm, kRmsNormCpu, {x, w}, {{"eps", kEps}});
  expect_close(out.results[0], reference(x.values(), w.values()), tolerance(DType::kFloat32), "rms_norm, small");
}

// Follows Hugging Face: the normalised value is rounded to the storage type before the weight multiplies it.
TEST(Norm, RoundsBeforeTheWeight) {
  const HostTensor x = testing::make_tensor(DType::kBFloat16, {1, 2}, std::vector<double>{1.0, 1.0078125});
  const HostTensor w = testing::filled_tensor(DType::kBFloat16, {2}, 1.9921875);
  const auto out = testing::run_op(kRmsNorm, kRmsNormCpu, {x, w}, {{"eps", kEps}});
  const float factor = 1.0f / std::sqrt((1.0f + 1.0078125f * 1.0078125f) / 2.0f + 1e-5f);
  for (std::int64_t i = 0; i < 2; ++i) {
    const float normed = to_float(from_float<BFloat16>(static_cast<float>(x.at(i)) * factor));
    EXPECT_EQ(out.results[0].at(i), to_float(from_float<BFloat16>(normed * 1.9921875f))) << i;
  }
}

// Follows Gemma 4 in Hugging Face: only the product is rounded.
TEST(Norm, RoundsOnce) {
  const HostTensor x = testing::make_tensor(DType::kBFloat16, {1, 2}, std::vector<double>{1.0, 1.0078125});
  const HostTensor w = testing::filled_tensor(DType::kBFloat16, {2}, 1.9921875);
  const ir::Attributes attributes{{"eps", kEps}, {"round_once", true}};
  const float factor = 1.0f / std::sqrt((1.0f + 1.0078125f * 1.0078125f) / 2.0f + 1e-5f);
  for (const auto& [decl, kernel] : {std::pair(&kRmsNorm, &kRmsNormCpu), std::pair(&kHeadNorm, &kHeadNormCpu)}) {
    const auto out = testing::run_op(*decl, *kernel, {x, w}, attributes);
    for (std::int64_t i = 0; i < 2; ++i) {
      const float product = static_cast<float>(x.at(i)) * factor * 1.9921875f;
      EXPECT_EQ(out.results[0].at(i), to_float(from_float<BFloat16>(product))) << i;
    }
  }
}

// w holds the weight minus one, and the product is rounded once.
TEST(Norm, UnitOffsetAddsOneToTheWeight) {
  const ir::Attributes attributes{{"eps", kEps}, {"unit_offset", true}};
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const auto& dims : {std::vector<std::int64_t>{3, 7}, {5, 64}, {2, 8191}, {3, 4096}, {2, 16384}}) {
      const HostTensor x = random_tensor(dtype, dims, 1, -3, 3);
      const HostTensor residual = random_tensor(dtype, dims, 2, -3, 3);
      const HostTensor w = random_tensor(dtype, {dims.back()}, 3, -0.5, 0.5);
      std::vector<double> weights = w.values();
      for (double& weight : weights) weight += 1;
      const auto plain = testing::run_op(kRmsNorm, kRmsNormCpu, {x, w}, attributes);
      expect_close(plain.results[0], reference(x.values(), weights), tolerance(dtype), title("rms_norm", x));
      const auto sum = testing::run_op(kAddRmsNorm, kAddRmsNormCpu, {x, residual, w}, attributes);
      expect_close(sum.results[0], reference(sum.results[1].values(), weights), tolerance(dtype),
                   title("add_rms_norm", x));
      const auto head = testing::run_op(kHeadNorm, kHeadNormCpu, {x, w}, attributes);
      EXPECT_EQ(head.results[0].bytes, plain.results[0].bytes);
    }
  }
}

TEST(Norm, AddRmsNormMatchesTheReference) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const auto& dims : shapes()) {
      const HostTensor x = random_tensor(dtype, dims, 1, -3, 3);
      const HostTensor residual = random_tensor(dtype, dims, 2, -3, 3);
      const HostTensor w = random_tensor(dtype, {dims.back()}, 3, 0.5, 1.5);
      const auto out = testing::run_op(kAddRmsNorm, kAddRmsNormCpu, {x, residual, w}, {{"eps", kEps}});
      HostTensor sum = x;
      for (std::int64_t i = 0; i < x.size(); ++i) sum.set(i, x.at(i) + residual.at(i));
      EXPECT_EQ(out.results[1].bytes, sum.bytes) << title("the sum of", x);
      expect_close(out.results[0], reference(sum.values(), w.values()), tolerance(dtype, 2), title("add_rms_norm", x));
    }
  }
}

TEST(Norm, HeadNormMatchesTheReference) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const auto& [heads, head_dim] : {std::pair<std::int64_t, std::int64_t>{1, 64}, {16, 128}, {3, 5}, {2, 80}}) {
      const HostTensor x = random_tensor(dtype, {7, heads * head_dim}, 1, -3, 3);
      const HostTensor w = random_tensor(dtype, {head_dim}, 2, 0.5, 1.5);
      const auto out = testing::run_op(kHeadNorm, kHeadNormCpu, {x, w}, {{"eps", kEps}});
      expect_close(out.results[0], reference(x.values(), w.values()), tolerance(dtype, 2), title("head_norm", x));
    }
  }
}

TEST(Norm, RowsAreIndependent) {
  for (const DType dtype : testing::kFloatingDTypes) {
    const HostTensor x = random_tensor(dtype, {40, 1030}, 1);
    const HostTensor residual = random_tensor(dtype, {40, 1030}, 2);
    const HostTensor w = random_tensor(dtype, {1030}, 3);
    const HostTensor w_head = random_tensor(dtype, {103}, 4);
    testing::expect_rows_independent(kRmsNorm, kRmsNormCpu, {x, w}, {0}, {{"eps", kEps}});
    testing::expect_rows_independent(kAddRmsNorm, kAddRmsNormCpu, {x, residual, w}, {0, 1}, {{"eps", kEps}});
    testing::expect_rows_independent(kHeadNorm, kHeadNormCpu, {x, w_head}, {0}, {{"eps", kEps}});
  }
}

TEST(Norm, RefusesWhatKernelsCannotTake) {
  const ir::Type x{DType::kBFloat16, {ir::Symbol::kTokens, 64}};
  const ir::Type w{DType::kBFloat16, {64}};
  const ir::Attributes eps{{"eps", kEps}};
  EXPECT_EQ(infer_error(kRmsNorm, {x, w}, eps), "");
  EXPECT_THAT(infer_error(kRmsNorm, {x, {DType::kBFloat16, {63}}}, eps),
              HasSubstr("w is bf16[63]; it must be bf16[64]"));
  EXPECT_THAT(infer_error(kRmsNorm, {x, {DType::kFloat32, {64}}}, eps), HasSubstr("w is f32[64]"));
  EXPECT_THAT(infer_error(kRmsNorm, {{DType::kInt32, {4, 64}}, w}, eps), HasSubstr("f32, bf16 or f16"));
  EXPECT_THAT(infer_error(kRmsNorm, {{DType::kBFloat16, {}}, w}, eps), HasSubstr("at least 1 dimensions"));
  EXPECT_THAT(infer_error(kRmsNorm, {{DType::kBFloat16, {64, ir::Symbol::kTokens}}, w}, eps),
              HasSubstr("a number above 0"));
  EXPECT_THAT(infer_error(kRmsNorm, {x, w}, {{"eps", -1.0}}), HasSubstr("eps = -1"));
  EXPECT_EQ(infer_error(kAddRmsNorm, {x, x, w}, eps), "");
  EXPECT_THAT(infer_error(kAddRmsNorm, {x, w, w}, eps), HasSubstr("residual is bf16[64]; it must be bf16[T, 64]"));
  EXPECT_EQ(infer_error(kHeadNorm, {x, {DType::kBFloat16, {16}}}, eps), "");
  EXPECT_THAT(infer_error(kHeadNorm, {x, {DType::kBFloat16, {24}}}, eps), HasSubstr("no multiple of the 24"));
}

}  // namespace
}  // namespace tessera
