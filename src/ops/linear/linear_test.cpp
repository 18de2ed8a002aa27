// Catches: a wrong operand order, transposition or stride; a lost bias or residual; rounding more than once; wrong
// results for sizes that are no multiple of a vector or block; scratch memory that is too small; wrong results if y
// uses the residual's memory.
#include "tessera/ops/linear/linear.h"

#include <gmock/gmock.h>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/linear/linear_cpu.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct MatmulSizes {
  std::int64_t m, n, k;
};
struct Terms {
  bool bias, residual;
};

std::vector<HostTensor> make_operands(DType dtype, MatmulSizes sizes, Terms terms) {
  std::vector<HostTensor> operands = {random_tensor(dtype, {sizes.m, sizes.k}, 1),
                                      random_tensor(dtype, {sizes.n, sizes.k}, 2)};
  if (terms.bias) operands.push_back(random_tensor(dtype, {sizes.n}, 3));
  if (terms.residual) operands.push_back(random_tensor(dtype, {sizes.m, sizes.n}, 4));
  return operands;
}

std::vector<double> reference(const std::vector<HostTensor>& operands, MatmulSizes sizes, Terms terms) {
  const std::vector<double> x = operands[0].values();
  const std::vector<double> w = operands[1].values();
  std::vector<double> y;
  for (std::int64_t i = 0; i < sizes.m; ++i)
    for (std::int64_t j = 0; j < sizes.n; ++j) {
      double sum = terms.bias ? operands[2].at(j) : 0;
      if (terms.residual) sum += operands.back().at(i * sizes.n + j);
      y.push_back(sum + dot(x.data() + i * sizes.k, w.data() + j * sizes.k, sizes.k));
    }
  return y;
}

// Returns a tolerance for float32 sums of k products of numbers below 1, followed by one rounding to the dtype.
Tolerance sum_tolerance(DType dtype, std::int64_t k) {
  Tolerance allowed = tolerance(dtype);
  allowed.absolute += 3e-7 * std::sqrt(static_cast<double>(k)) * 4;
  return allowed;
}

std::string describe(const std::string& way, MatmulSizes sizes, Terms terms) {
  return way + " " + std::to_string(sizes.m) + "x" + std::to_string(sizes.n) + "x" + std::to_string(sizes.k) +
         (terms.bias ? " bias" : "") + (terms.residual ? " residual" : "");
}

const MatmulSizes kSizes[] = {{1, 48, 1152}, {5, 16, 2880}, {1, 1, 1},    {1, 64, 64},   {1, 67, 131},  {2, 33, 96},
                              {3, 5, 31},    {4, 130, 40},  {5, 17, 257}, {6, 64, 1000}, {7, 65, 32},   {8, 3, 63},
                              {9, 64, 64},   {13, 100, 77}, {64, 96, 33}, {97, 65, 300}, {130, 128, 64}};
const Terms kTerms[] = {{false, false}, {true, false}, {false, true}, {true, true}};

class Linear : public ::testing::TestWithParam<DType> {};

TEST_P(Linear, MatchesTheReference) {
  for (const MatmulSizes sizes : kSizes)
    for (const Terms terms : kTerms) {
      const std::vector<HostTensor> operands = make_operands(GetParam(), sizes, terms);
      const OpOutcome out = run_op(kLinear, kLinearCpu, operands, {{"bias", terms.bias}, {"residual", terms.residual}});
      expect_close(out.results[0], reference(operands, sizes, terms), sum_tolerance(GetParam(), sizes.k),
                   describe("linear", sizes, terms));
    }
}

// Checks one kernel directly, even at sizes at which linear would use another kernel.
void check_way(const std::string& name, DType dtype, MatmulSizes sizes, Terms terms,
               Result<std::unique_ptr<BoundOp>> (*bind)(const LinearProblem&), std::size_t workspace_bytes,
               bool in_place) {
  Result<std::unique_ptr<CpuDevice>> device = CpuDevice::create({});
  ASSERT_TRUE(device.ok());
  Result<std::unique_ptr<Stream>> stream = (*device)->create_stream("test");
  ASSERT_TRUE(stream.ok());
  std::vector<HostTensor> operands = make_operands(dtype, sizes, terms);
  const std::vector<double> expected = reference(operands, sizes, terms);
  HostTensor y = poisoned_tensor(dtype, {sizes.m, sizes.n});
  if (in_place) y = operands.back();
  std::vector<std::byte> workspace(workspace_bytes, std::byte{0xff});
  const LinearProblem problem{.x = operands[0].bytes.data(),
                              .w = operands[1].bytes.data(),
                              .bias = terms.bias ? operands[2].bytes.data() : nullptr,
                              .residual = in_place         ? y.bytes.data()
                                          : terms.residual ? operands.back().bytes.data()
                                                           : nullptr,
                              .y = y.bytes.data(),
                              .m = sizes.m,
                              .n = sizes.n,
                              .k = sizes.k,
                              .dtype = dtype,
                              .workspace = workspace.data(),
                              .workers = std::max(1, (*device)->properties().threads)};
  Result<std::unique_ptr<BoundOp>> bound = bind(problem);
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  ASSERT_TRUE((*bound)->enqueue(**stream).ok());
  expect_close(y, expected, sum_tolerance(dtype, sizes.k),
               describe(name + (in_place ? " in place" : ""), sizes, terms));
}

LinearProblem sizes_only(DType dtype, MatmulSizes sizes, int workers) {
  LinearProblem problem{};
  problem.m = sizes.m;
  problem.n = sizes.n;
  problem.k = sizes.k;
  problem.dtype = dtype;
  problem.workers = workers;
  return problem;
}

TEST_P(Linear, EveryKernelMatchesTheReference) {
  Result<std::unique_ptr<CpuDevice>> device = CpuDevice::create({});
  ASSERT_TRUE(device.ok());
  const int workers = std::max(1, (*device)->properties().threads);
  for (const MatmulSizes sizes : {MatmulSizes{4, 66, 100}, MatmulSizes{1030, 70, 290}})
    for (const bool in_place : {false, true}) {
      const Terms terms{true, true};
      const LinearProblem problem = sizes_only(GetParam(), sizes, workers);
      check_way("dot", GetParam(), sizes, terms, bind_dot, dot_workspace_bytes(problem), in_place);
      check_way("blocked", GetParam(), sizes, terms, bind_blocked, blocked_workspace_bytes(problem), in_place);
      if (!onednn_takes(GetParam())) continue;
      Result<std::size_t> bytes = onednn_workspace_bytes(problem, true, true);
      ASSERT_TRUE(bytes.ok()) << bytes.status().message();
      check_way("onednn", GetParam(), sizes, terms, bind_onednn, *bytes, in_place);
    }
}

TEST_P(Linear, AcceptsEmptySizesAndLeadingDimensions) {
  const DType dtype = GetParam();
  EXPECT_EQ(run_op(kLinear, kLinearCpu, make_operands(dtype, {0, 8, 16}, {})).results[0].size(), 0);
  EXPECT_EQ(run_op(kLinear, kLinearCpu, make_operands(dtype, {3, 0, 16}, {})).results[0].size(), 0);
  // A sum of no products gives the bias plus the residual.
  for (const MatmulSizes sizes : {MatmulSizes{2, 5, 0}, MatmulSizes{40, 70, 0}}) {
    const Terms terms{true, true};
    const std::vector<HostTensor> operands = make_operands(dtype, sizes, terms);
    const OpOutcome out = run_op(kLinear, kLinearCpu, operands, {{"bias", true}, {"residual", true}});
    expect_close(out.results[0], reference(operands, sizes, terms), tolerance(dtype), describe("linear", sizes, terms));
  }
  std::vector<HostTensor> operands = make_operands(dtype, {12, 10, 24}, {});
  const std::vector<double> expected = reference(operands, {12, 10, 24}, {});
  operands[0].dims = {3, 4, 24};
  const OpOutcome out = run_op(kLinear, kLinearCpu, operands);
  EXPECT_EQ(out.results[0].dims, (std::vector<std::int64_t>{3, 4, 10}));
  expect_close(out.results[0], expected, sum_tolerance(dtype, 24), "linear [3, 4, 24]");
}

// A padding row may contain anything, even NaN.
TEST_P(Linear, NanInOneRowStaysThere) {
  for (const MatmulSizes sizes : {MatmulSizes{5, 40, 64}, MatmulSizes{33, 40, 64}}) {
    std::vector<HostTensor> operands = make_operands(GetParam(), sizes, {});
    std::vector<double> expected = reference(operands, sizes, {});
    for (std::int64_t i = 0; i < sizes.k; ++i) operands[0].set((sizes.m - 1) * sizes.k + i, std::nan(""));
    std::fill(expected.end() - sizes.n, expected.end(), std::nan(""));
    const OpOutcome out = run_op(kLinear, kLinearCpu, operands);
    expect_close(out.results[0], expected, sum_tolerance(GetParam(), sizes.k), describe("NaN row", sizes, {}));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Linear, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

TEST(LinearShapes, RefusesOperandsThatDoNotFit) {
  const ir::Type x{DType::kBFloat16, {ir::Symbol::kTokens, 64}};
  const ir::Type w{DType::kBFloat16, {96, 64}};
  const ir::Type bias{DType::kBFloat16, {96}};
  const ir::Type residual{DType::kBFloat16, {ir::Symbol::kTokens, 96}};
  const Result<std::vector<ir::Type>> types =
      infer_types(kLinear, {x, w, bias, residual}, {{"bias", true}, {"residual", true}});
  ASSERT_TRUE(types.ok());
  EXPECT_EQ((*types)[0], residual);
  EXPECT_THAT(infer_error(kLinear, {x, w, bias}), HasSubstr("takes 2 operands, not 3"));
  EXPECT_THAT(infer_error(kLinear, {x, w, bias}, {{"residual", true}}),
              HasSubstr("residual bf16[T, 96], not bf16[96]"));
  EXPECT_THAT(infer_error(kLinear, {x, w, residual}, {{"bias", true}}), HasSubstr("bias bf16[96], not bf16[T, 96]"));
  const ir::Type w_transposed{DType::kBFloat16, {64, 96}};
  EXPECT_THAT(infer_error(kLinear, {x, w_transposed}), HasSubstr("for x bf16[T, 64], not bf16[64, 96]"));
  const ir::Type w_float{DType::kFloat32, {96, 64}};
  EXPECT_THAT(infer_error(kLinear, {x, w_float}), HasSubstr("f32[96, 64]"));
  const ir::Type ids{DType::kInt32, {ir::Symbol::kTokens, 64}};
  EXPECT_THAT(infer_error(kLinear, {ids, w}), HasSubstr("i32[T, 64]"));
}

}  // namespace
}  // namespace tessera::testing
