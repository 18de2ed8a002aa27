// Catches: a gate that is read from the wrong columns or gets the wrong activation function; a norm that is computed
// over the whole row instead of over each head; rows that affect each other.
#include "tessera/ops/recurrent/output_gate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;

class OutputGate : public ::testing::TestWithParam<DType> {};

TEST_P(OutputGate, GatedNormEqualsTheReference) {
  const DType dtype = GetParam();
  for (const auto& [rows, heads, dim, width, column] :
       {std::array<std::int64_t, 5>{5, 3, 16, 48, 0}, {1, 2, 128, 700, 444}, {0, 2, 16, 32, 0}, {7, 1, 33, 50, 13}}) {
    const HostTensor x = random_tensor(dtype, {rows, heads * dim}, 1, -3, 3);
    const HostTensor z = random_tensor(dtype, {rows, width}, 2, -5, 5);
    const HostTensor w = random_tensor(DType::kFloat32, {dim}, 3, 0.5, 2);
    std::vector<double> expected;
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t i = 0; i < heads * dim; ++i) {
        const std::int64_t head = t * heads * dim + i / dim * dim;
        double squares = 0;
        for (std::int64_t j = 0; j < dim; ++j) squares += x.at(head + j) * x.at(head + j);
        const double gate = z.at(t * width + column + i);
        expected.push_back(x.at(t * heads * dim + i) / std::sqrt(squares / static_cast<double>(dim) + 1e-3) *
                           w.at(i % dim) * gate / (1 + std::exp(-gate)));
      }
    const OpOutcome out = run_op(kGatedNorm, kGatedNormCpu, {x, z, w}, {{"eps", 1e-3}, {"column", column}});
    expect_close(out.results[0], expected, tolerance(dtype, 2), "gated_norm");
  }
}

TEST_P(OutputGate, SigmoidGateEqualsTheReference) {
  const DType dtype = GetParam();
  for (const std::int64_t cols : {1, 8, 37, 512}) {
    const HostTensor x = random_tensor(dtype, {3, cols}, 1, -3, 3);
    const HostTensor gate = random_tensor(dtype, {3, cols}, 2, -9, 9);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < x.size(); ++i) expected.push_back(x.at(i) / (1 + std::exp(-gate.at(i))));
    const OpOutcome out = run_op(kSigmoidGate, kSigmoidGateCpu, {x, gate});
    expect_close(out.results[0], expected, tolerance(dtype, 2), "sigmoid_gate");
  }
}

TEST_P(OutputGate, RowsAreIndependent) {
  const DType dtype = GetParam();
  const HostTensor x = random_tensor(dtype, {6, 64}, 1);
  const HostTensor z = random_tensor(dtype, {6, 100}, 2);
  const HostTensor w = random_tensor(DType::kFloat32, {16}, 3);
  expect_rows_independent(kGatedNorm, kGatedNormCpu, {x, z, w}, {0, 1}, {{"eps", 1e-6}, {"column", std::int64_t{36}}});
  expect_rows_independent(kSigmoidGate, kSigmoidGateCpu, {x, x}, {0, 1});
}

INSTANTIATE_TEST_SUITE_P(DTypes, OutputGate, ::testing::ValuesIn(kFloatingDTypes),
                         [](const auto& dtype) { return std::string(ir::dtype_name(dtype.param)); });

TEST(OutputGateShapes, AreChecked) {
  const ir::Type x{DType::kBFloat16, {ir::Symbol::kTokens, 32}};
  const ir::Type z{DType::kBFloat16, {ir::Symbol::kTokens, 40}};
  const ir::Type w{DType::kFloat32, {16}};
  const auto error = [&](const std::vector<ir::Type>& operands, std::int64_t column, double eps = 1e-6) {
    return infer_error(kGatedNorm, operands, {{"eps", eps}, {"column", column}});
  };
  EXPECT_EQ(error({x, z, w}, 8), "");
  EXPECT_NE(error({x, z, w}, 9), "");
  EXPECT_NE(error({x, z, w}, -1), "");
  EXPECT_NE(error({x, z, w}, 0, 0.0), "");
  EXPECT_NE(error({x, z, {DType::kBFloat16, {16}}}, 0), "");
  EXPECT_NE(error({x, z, {DType::kFloat32, {12}}}, 0), "");
  EXPECT_NE(error({x, {DType::kFloat32, z.shape}, w}, 0), "");
  EXPECT_EQ(infer_error(kSigmoidGate, {x, x}), "");
  EXPECT_NE(infer_error(kSigmoidGate, {x, z}), "");
}

}  // namespace
}  // namespace tessera::testing
