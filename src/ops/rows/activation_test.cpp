// Catches: a gate that is exchanged with the up projection; elements at the end of a row that are not computed; an
// approximation that fails for large, small or negative arguments; NaN for arguments of large magnitude, where results
// approach 0 or x; and rows that influence each other.
#include "tessera/ops/rows/activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numbers>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using testing::expect_close;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::random_tensor;
using testing::Tolerance;
using testing::tolerance;

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
double gelu_tanh(double x) {
  // Uses 1 + tanh(a) = 2 / (1 + e^-2a), which keeps its digits for negative a.
  const double a = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * a));
}

double quick_gelu(double x) { return x / (1 + std::exp(-1.702 * x)); }

// Returns arguments of both signs in every decade, large arguments at which the functions reach their limits, and many
// closely spaced arguments around 0.
HostTensor hard_arguments(DType dtype) {
  std::vector<double> values{0, -0.0, 100, -100, 3e4, -3e4};
  for (double decade = 1e-7; decade < 2e2; decade *= 1.7) {
    values.push_back(decade);
    values.push_back(-decade);
  }
  for (int i = -2000; i <= 2000; ++i) values.push_back(i * 0.005);
  return testing::make_tensor(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

// Returns a tolerance whose absolute part is only 1e-30 (6e-8 for float16), because the tiny results for arguments far
// below 0 must also be right.
Tolerance relative(DType dtype, double factor) {
  Tolerance t = tolerance(dtype, factor);
  t.absolute = dtype == DType::kFloat16 ? 6e-8 : 1e-30;
  return t;
}

void check_unary(const ir::OpDecl& decl, const KernelDef& kernel, double (*f)(double), const ir::Attributes& attributes,
                 const std::string& what) {
  for (const DType dtype : testing::kFloatingDTypes) {
    const HostTensor x = hard_arguments(dtype);
    const auto out = testing::run_op(decl, kernel, {x}, attributes);
    std::vector<double> expected;
    for (const double v : x.values()) expected.push_back(f(v));
    expect_close(out.results[0], expected, relative(dtype, 8), what);
  }
}

TEST(Activation, SiluAndGeluMatchTheReferenceAtAllMagnitudes) {
  check_unary(kSilu, kSiluCpu, silu, {}, "silu");
  check_unary(kQuickGelu, kQuickGeluCpu, quick_gelu, {}, "quick_gelu");
  check_unary(kGelu, kGeluCpu, gelu_tanh, {}, "gelu, tanh");
  check_unary(kGelu, kGeluCpu, gelu_tanh, {{"tanh", true}}, "gelu, tanh");
  check_unary(kGelu, kGeluCpu, gelu_erf, {{"tanh", false}}, "gelu, erf");
}

void check_gated(const ir::OpDecl& decl, const KernelDef& kernel, double (*f)(double), const ir::Attributes& attributes,
                 const std::string& what) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const auto& [rows, half] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 17}, {5, 64}, {40, 1030}, {0, 8}}) {
      const HostTensor x = random_tensor(dtype, {rows, 2 * half}, 5, -4, 4);
      const auto out = testing::run_op(decl, kernel, {x}, attributes);
      std::vector<double> expected;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < half; ++i)
          expected.push_back(f(x.at(r * 2 * half + i)) * x.at(r * 2 * half + half + i));
      expect_close(out.results[0], expected, tolerance(dtype, 2), what + " " + x.type().to_string());
    }
  }
}

TEST(Activation, GatedFormsMatchTheReference) {
  check_gated(kSiluMul, kSiluMulCpu, silu, {}, "silu_mul");
  check_gated(kGeluMul, kGeluMulCpu, gelu_tanh, {}, "gelu_mul, tanh");
  check_gated(kGeluMul, kGeluMulCpu, gelu_erf, {{"tanh", false}}, "gelu_mul, erf");
}

TEST(Activation, SoftcapMatchesTheReference) {
  for (const double cap : {30.0, 50.0, 0.5}) {
    for (const DType dtype : testing::kFloatingDTypes) {
      const HostTensor x = hard_arguments(dtype);
      const auto out = testing::run_op(kSoftcap, kSoftcapCpu, {x}, {{"cap", cap}});
      std::vector<double> expected;
      for (const double v : x.values()) expected.push_back(cap * std::tanh(v / cap));
      expect_close(out.results[0], expected, relative(dtype, 2), "softcap " + std::to_string(cap));
    }
  }
}

TEST(Activation, InfinitiesReachTheirLimitsAndNaNStays) {
  const double inf = std::numeric_limits<double>::infinity();
  const HostTensor x = testing::make_tensor(DType::kFloat32, {3}, std::vector<double>{inf, -inf, std::nan("")});
  const auto out = testing::run_op(kSoftcap, kSoftcapCpu, {x}, {{"cap", 30.0}});
  EXPECT_EQ(out.results[0].at(0), 30);
  EXPECT_EQ(out.results[0].at(1), -30);
  EXPECT_TRUE(std::isnan(out.results[0].at(2)));
  EXPECT_EQ(testing::run_op(kSilu, kSiluCpu, {x}).results[0].at(0), inf);
  EXPECT_TRUE(std::isnan(testing::run_op(kSilu, kSiluCpu, {x}).results[0].at(2)));
}

TEST(Activation, RowsAreIndependent) {
  for (const DType dtype : testing::kFloatingDTypes) {
    const HostTensor x = random_tensor(dtype, {40, 2060}, 1);
    testing::expect_rows_independent(kSiluMul, kSiluMulCpu, {x}, {0});
    testing::expect_rows_independent(kGeluMul, kGeluMulCpu, {x}, {0});
    testing::expect_rows_independent(kGeluMul, kGeluMulCpu, {x}, {0}, {{"tanh", false}});
    testing::expect_rows_independent(kSilu, kSiluCpu, {x}, {0});
    testing::expect_rows_independent(kGelu, kGeluCpu, {x}, {0});
    testing::expect_rows_independent(kSoftcap, kSoftcapCpu, {x}, {0}, {{"cap", 3.0}});
  }
}

TEST(Activation, RefusesUnsupportedOperands) {
  EXPECT_EQ(testing::infer_types(kSiluMul, {{DType::kFloat16, {ir::Symbol::kTokens, 64}}}).value()[0].to_string(),
            "f16[T, 32]");
  EXPECT_THAT(infer_error(kSiluMul, {{DType::kFloat32, {4, 7}}}), HasSubstr("have 7 values"));
  EXPECT_THAT(infer_error(kSiluMul, {{DType::kInt64, {4, 8}}}), HasSubstr("f32, bf16 or f16"));
  EXPECT_THAT(infer_error(kSiluMul, {{DType::kFloat32, {4, ir::Symbol::kTokens}}}), HasSubstr("a number above 0"));
  EXPECT_THAT(infer_error(kGelu, {{DType::kUInt8, {4}}}), HasSubstr("f32, bf16 or f16"));
  EXPECT_THAT(infer_error(kSoftcap, {{DType::kFloat32, {4}}}, {{"cap", 0.0}}), HasSubstr("cap = 0"));
}

}  // namespace
}  // namespace tessera
