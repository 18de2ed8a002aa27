// Catches: a head that meets another head's matrix, columns of a head that are not read or overwritten, sizes that are
// no multiple of a block, and a row whose bits depend on the other rows.
#include "tessera/ops/head_linear.h"

#include <gmock/gmock.h>

#include "tessera/ops/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct Sizes {
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t n;
  std::int64_t k;
  std::int64_t more_x = 0;    // columns of a head of x that are not read
  std::int64_t more_out = 0;  // columns of a head of out that are not written
  bool transposed = false;
};

std::vector<HostTensor> operands_of(DType dtype, const Sizes& s) {
  return {random_tensor(dtype, {s.rows, s.heads * (s.k + s.more_x)}, 1),
          random_tensor(dtype, {s.heads, s.transposed ? s.k : s.n, s.transposed ? s.n : s.k}, 2),
          poisoned_tensor(dtype, {s.rows, s.heads * (s.n + s.more_out)})};
}

void check(DType dtype, const Sizes& s) {
  std::vector<HostTensor> operands = operands_of(dtype, s);
  for (std::int64_t i = 0; i < s.rows * s.heads; ++i)
    for (std::int64_t d = s.k; d < s.k + s.more_x; ++d) operands[0].set(i * (s.k + s.more_x) + d, std::nan(""));
  const OpOutcome out = run_op(kHeadLinear, kHeadLinearCpu, operands, {{"transposed", s.transposed}});
  std::vector<double> expected = operands[2].values();
  const std::vector<double> x = operands[0].values();
  const std::vector<double> w = operands[1].values();
  for (std::int64_t t = 0; t < s.rows; ++t)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t n = 0; n < s.n; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < s.k; ++k)
          sum += x[static_cast<std::size_t>((t * s.heads + h) * (s.k + s.more_x) + k)] *
                 w[static_cast<std::size_t>(s.transposed ? (h * s.k + k) * s.n + n : (h * s.n + n) * s.k + k)];
        expected[static_cast<std::size_t>((t * s.heads + h) * (s.n + s.more_out) + n)] = sum;
      }
  Tolerance allowed = tolerance(dtype);
  allowed.absolute += 1e-6 * static_cast<double>(s.k);
  expect_close(out.operands[2], expected, allowed,
               std::to_string(s.rows) + " rows, " + std::to_string(s.heads) + " heads of " + std::to_string(s.n) +
                   " x " + std::to_string(s.k) + (s.transposed ? ", transposed" : ""));
}

class HeadLinear : public ::testing::TestWithParam<DType> {};

TEST_P(HeadLinear, MultipliesEachHeadByItsMatrix) {
  for (Sizes s : {Sizes{1, 1, 1, 1}, Sizes{0, 4, 32, 16}, Sizes{5, 4, 32, 16, 8, 8}, Sizes{3, 2, 65, 33, 1, 3},
                  Sizes{97, 3, 16, 24, 8}, Sizes{200, 2, 70, 20, 0, 5}, Sizes{2, 16, 512, 128, 64, 64},
                  Sizes{8, 2, 72, 200}, Sizes{7, 2, 128, 512}, Sizes{4, 2, 40, 1040}})
    for (const bool transposed : {false, true}) {
      s.transposed = transposed;
      check(GetParam(), s);
    }
}

TEST_P(HeadLinear, RowsOfADeterministicForwardAreTheSameAmongAnyOthers) {
  ForwardContext context;
  context.limits.deterministic = true;
  const Sizes s{130, 3, 70, 36};
  const std::vector<HostTensor> operands = operands_of(GetParam(), s);
  const HostTensor all = run_op(kHeadLinear, kHeadLinearCpu, operands, {}, context).operands[2];
  for (const std::int64_t count : {1, 2, 5, 6, 17, 96, 97}) {
    const std::int64_t first = (s.rows - count) * (count % 3) / 2;
    std::vector<HostTensor> some = operands;
    some[0] = slice_rows(operands[0], first, first + count);
    some[2] = slice_rows(operands[2], first, first + count);
    EXPECT_EQ(run_op(kHeadLinear, kHeadLinearCpu, some, {}, context).operands[2].bytes,
              slice_rows(all, first, first + count).bytes)
        << count << " rows";
  }
  std::vector<HostTensor> poisoned = operands;
  std::fill(poisoned[0].bytes.end() - static_cast<std::ptrdiff_t>(row_bytes(operands[0])), poisoned[0].bytes.end(),
            std::byte{0xff});
  const HostTensor beside = run_op(kHeadLinear, kHeadLinearCpu, poisoned, {}, context).operands[2];
  EXPECT_EQ(slice_rows(beside, 0, s.rows - 1).bytes, slice_rows(all, 0, s.rows - 1).bytes) << "NaN in the last row";
}

INSTANTIATE_TEST_SUITE_P(Types, HeadLinear, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

TEST(HeadLinearShapes, RefusesWhatDoesNotFit) {
  const auto x = [](std::int64_t cols) { return ir::Type{DType::kBFloat16, {ir::Symbol::kTokens, cols}}; };
  const ir::Type w{DType::kBFloat16, {4, 32, 24}};
  EXPECT_EQ(infer_error(kHeadLinear, {x(4 * 32), w, x(4 * 40)}), "");
  EXPECT_THAT(infer_error(kHeadLinear, {x(4 * 20), w, x(128)}), HasSubstr("rows of x have 80 values"));
  EXPECT_THAT(infer_error(kHeadLinear, {x(98), w, x(128)}), HasSubstr("rows of x have 98 values"));
  EXPECT_THAT(infer_error(kHeadLinear, {x(96), w, x(4 * 31)}), HasSubstr("rows of out have 124 values"));
  const ir::Attributes transposed{{"transposed", true}};
  EXPECT_EQ(infer_error(kHeadLinear, {x(4 * 32), w, x(4 * 24)}, transposed), "");
  EXPECT_THAT(infer_error(kHeadLinear, {x(96), w, x(4 * 24)}, transposed), HasSubstr("rows of x have 96 values"));
  const ir::Type other{DType::kFloat32, {4, 32, 24}};
  EXPECT_THAT(infer_error(kHeadLinear, {x(96), other, x(128)}), HasSubstr("f32[4, 32, 24]"));
  const ir::Type matrix{DType::kBFloat16, {32, 24}};
  EXPECT_THAT(infer_error(kHeadLinear, {x(96), matrix, x(128)}), HasSubstr("bf16[32, 24]"));
}

}  // namespace
}  // namespace tessera::testing
