// Catches: an operand b of one row that is read as if it had as many rows as operand a, or the reverse; results that
// are rounded twice; casts that are wrong for subnormals, infinities or ties; and copies that miss their last bytes.
#include "tessera/ops/rows/elementwise.h"

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

void check_binary(const ir::OpDecl& decl, const KernelDef& kernel, double (*f)(double, double)) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const std::vector<std::int64_t>& dims :
         std::vector<std::vector<std::int64_t>>{{1}, {5, 3}, {2, 3, 67}, {40, 1030}, {0, 8}}) {
      for (const std::vector<std::int64_t>& b_dims : {dims, {dims.back()}, {1}}) {
        const HostTensor a = random_tensor(dtype, dims, 1, -4, 4);
        const HostTensor b = random_tensor(dtype, b_dims, 2, -4, 4);
        const auto out = testing::run_op(decl, kernel, {a, b});
        std::vector<double> expected;
        for (std::int64_t i = 0; i < a.size(); ++i) expected.push_back(f(a.at(i), b.at(i % b.size())));
        expect_close(out.results[0], expected, tolerance(dtype),
                     std::string(decl.name) + " " + a.type().to_string() + " " + b.type().to_string());
      }
    }
  }
}

TEST(Elementwise, AddMatchesTheReference) {
  check_binary(kAdd, kAddCpu, [](double a, double b) { return a + b; });
}
TEST(Elementwise, MulMatchesTheReference) {
  check_binary(kMul, kMulCpu, [](double a, double b) { return a * b; });
}

TEST(Elementwise, ScaleMatchesTheReference) {
  for (const DType dtype : testing::kFloatingDTypes) {
    const HostTensor x = random_tensor(dtype, {40, 1031}, 1, -4, 4);
    const auto out = testing::run_op(kScale, kScaleCpu, {x}, {{"factor", -0.37}});
    std::vector<double> expected;
    for (const double v : x.values()) expected.push_back(v * -0.37);
    expect_close(out.results[0], expected, tolerance(dtype), "scale");
  }
}

TEST(Elementwise, CopySupportsAnyDType) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kInt64, DType::kUInt8}) {
    for (const std::vector<std::int64_t>& dims :
         std::vector<std::vector<std::int64_t>>{{}, {1}, {3, 7}, {123, 457}, {0, 4}}) {
      const HostTensor x = random_tensor(dtype, dims, 3, 0, 200);
      EXPECT_EQ(testing::run_op(kCopy, kCopyCpu, {x}).results[0].bytes, x.bytes) << x.type().to_string();
    }
  }
}

// All 65536 values of f16 and of bf16 pass through float32 unchanged. NaN stays NaN.
TEST(Elementwise, CastToFloat32AndBackIsExact) {
  for (const auto& [dtype, name] : {std::pair{DType::kFloat16, "f16"}, {DType::kBFloat16, "bf16"}}) {
    HostTensor x = testing::poisoned_tensor(dtype, {65536});
    for (std::int64_t i = 0; i < 65536; ++i) x.set_raw(i, static_cast<std::uint16_t>(i));
    const HostTensor wide = testing::run_op(kCast, kCastCpu, {x}, {{"dtype", std::string("f32")}}).results[0];
    const HostTensor back = testing::run_op(kCast, kCastCpu, {wide}, {{"dtype", std::string(name)}}).results[0];
    for (std::int64_t i = 0; i < 65536; ++i) {
      if (std::isnan(wide.at(i))) {
        EXPECT_TRUE(std::isnan(back.at(i))) << name << " bits " << i;
      } else {
        EXPECT_EQ(back.raw<std::uint16_t>(i), i) << name;
      }
    }
  }
}

// A value halfway between two neighbours rounds to the even one. The next float on either side rounds to the nearer
// neighbour.
TEST(Elementwise, CastRoundsToNearestEven) {
  for (const auto& [dtype, name, ulp] :
       {std::tuple{DType::kFloat16, "f16", 0x1p-10}, {DType::kBFloat16, "bf16", 0x1p-7}}) {
    std::vector<double> from;
    std::vector<double> expected;
    for (int i = 0; i < 8; ++i) {
      const double low = 1 + i * ulp;
      const double even = i % 2 == 0 ? low : low + ulp;
      for (const auto& [x, y] :
           {std::pair{low + ulp / 2, even}, {low + ulp / 2 - 0x1p-23, low}, {low + ulp / 2 + 0x1p-23, low + ulp}}) {
        from.insert(from.end(), {x, -x});
        expected.insert(expected.end(), {y, -y});
      }
    }
    const HostTensor x = testing::make_tensor(DType::kFloat32, {static_cast<std::int64_t>(from.size())}, from);
    const auto out = testing::run_op(kCast, kCastCpu, {x}, {{"dtype", std::string(name)}});
    expect_close(out.results[0], expected, {0, 0}, "cast of ties");
  }
  const HostTensor large = testing::make_tensor(DType::kFloat32, {2}, std::vector<double>{65519.0, 65520.0});
  const auto out = testing::run_op(kCast, kCastCpu, {large}, {{"dtype", std::string("f16")}});
  EXPECT_EQ(out.results[0].at(0), 65504);
  EXPECT_TRUE(std::isinf(out.results[0].at(1)));
}

TEST(Elementwise, RowsAreIndependent) {
  for (const DType dtype : testing::kFloatingDTypes) {
    const HostTensor a = random_tensor(dtype, {40, 1030}, 1);
    const HostTensor b = random_tensor(dtype, {40, 1030}, 2);
    const HostTensor row = random_tensor(dtype, {1030}, 3);
    testing::expect_rows_independent(kAdd, kAddCpu, {a, b}, {0, 1});
    testing::expect_rows_independent(kMul, kMulCpu, {a, row}, {0});
    testing::expect_rows_independent(kScale, kScaleCpu, {a}, {0}, {{"factor", 3.0}});
    testing::expect_rows_independent(kCopy, kCopyCpu, {a}, {0});
    testing::expect_rows_independent(kCast, kCastCpu, {a}, {0}, {{"dtype", std::string("f16")}});
  }
}

TEST(Elementwise, RefusesUnsupportedOperands) {
  const ir::Type x{DType::kFloat32, {ir::Symbol::kTokens, 64}};
  EXPECT_EQ(infer_error(kAdd, {x, x}), "");
  EXPECT_EQ(infer_error(kAdd, {x, {DType::kFloat32, {64}}}), "");
  EXPECT_THAT(infer_error(kAdd, {x, {DType::kBFloat16, {64}}}),
              HasSubstr("b is bf16[64]; it must be as a, f32[T, 64]"));
  EXPECT_THAT(infer_error(kMul, {x, {DType::kFloat32, {ir::Symbol::kTokens}}}), HasSubstr("b is f32[T]"));
  EXPECT_THAT(infer_error(kMul, {{DType::kInt32, {4}}, {DType::kInt32, {4}}}), HasSubstr("a is i32[4]"));
  EXPECT_THAT(infer_error(kScale, {x}, {{"factor", std::nan("")}}), HasSubstr("factor = nan"));
  EXPECT_THAT(infer_error(kCast, {x}, {{"dtype", std::string("i32")}}), HasSubstr("dtype = \"i32\""));
  EXPECT_THAT(infer_error(kCast, {x}, {{"dtype", std::string("float")}}), HasSubstr("dtype = \"float\""));
  EXPECT_EQ(testing::infer_types(kCast, {{DType::kBFloat16, {4}}}).value()[0].to_string(), "f32[4]");
}

}  // namespace
}  // namespace tessera
