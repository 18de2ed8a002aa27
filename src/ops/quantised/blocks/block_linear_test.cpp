// Catches: a product with numbers other than those of the blocks; rows and columns past the last full tile that are not
// computed; a lost bias or residual; sums that depend on the number of rows; scratch memory that is too small; operands
// that do not belong together but are accepted.
#include "tessera/ops/quantised/blocks/block_linear.h"

#include <gmock/gmock.h>

#include "tessera/ops/quantised/blocks/block_test_util.h"
#include "tessera/ops/quantised/quantised_linear.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct BlockLinearSizes {
  std::int64_t m, n, blocks;
};

class BlockLinear : public ::testing::TestWithParam<std::tuple<BlockType, BlockInputs>> {
 protected:
  BlockType type() const { return std::get<0>(GetParam()); }
  BlockInputs inputs() const { return std::get<1>(GetParam()); }
  DType dtype() const { return inputs().dtype; }
  ir::Attributes attributes() const {
    ir::Attributes all = format_of(type()).attributes();
    all.emplace_back("inputs", std::string(inputs().inputs));
    return all;
  }
};

TEST_P(BlockLinear, MatchesTheReference) {
  for (const auto& [m, n, blocks] :
       {BlockLinearSizes{1, 64, 4}, BlockLinearSizes{1, 7, 3}, BlockLinearSizes{6, 130, 9}, BlockLinearSizes{33, 81, 2},
        BlockLinearSizes{70, 48, 5}, BlockLinearSizes{530, 20, 1}})
    for (const bool more : {false, true}) {
      const std::int64_t k = blocks * block_type_info(type()).elements;
      const BlockCase w = random_block_case(type(), n, k, 3);
      std::vector<HostTensor> operands{random_tensor(dtype(), {m, k}, 1), w.operand};
      if (more) operands.push_back(random_tensor(dtype(), {n}, 4));
      if (more) operands.push_back(random_tensor(dtype(), {m, n}, 5));
      ir::Attributes attributes = this->attributes();
      attributes.emplace_back("bias", more);
      attributes.emplace_back("residual", more);
      if (is_refused(kQuantisedLinear, kQuantisedLinearCpu, operands, attributes)) return;
      const std::vector<double> x =
          rounds_inputs(type(), inputs()) ? rounded_to_eight_bits(operands[0]) : operands[0].values();
      std::vector<double> expected;
      double largest = 0;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = more ? operands[2].at(j) + operands[3].at(i * n + j) : 0;
          for (std::int64_t p = 0; p < k; ++p) {
            const double product =
                x[static_cast<std::size_t>(i * k + p)] * w.numbers[static_cast<std::size_t>(j * k + p)];
            sum += product;
            largest = std::max(largest, std::abs(product));
          }
          expected.push_back(sum);
        }
      Tolerance allowed = tolerance(dtype());
      allowed.absolute += largest * 2e-6 * std::sqrt(static_cast<double>(k));
      // If the inputs may not be rounded by block, oneDNN computes the product from 48 rows up, with weights rounded to
      // bfloat16.
      if (m >= 48 && dtype() == DType::kBFloat16 && inputs().inputs != std::string_view("block"))
        allowed.absolute += largest * 3 * 0x1p-9 * std::sqrt(static_cast<double>(k));
      const OpOutcome out = run_op(kQuantisedLinear, kQuantisedLinearCpu, operands, attributes);
      expect_close(out.results[0], expected, allowed, test_name_of(type()));
    }
}

TEST_P(BlockLinear, BitsDoNotDependOnOtherRows) {
  ForwardContext context;
  // If inputs may be rounded by block, bits never depend on other rows, even for a type without integer products. Other
  // inputs need a deterministic forward.
  context.limits.deterministic = inputs().inputs != std::string_view("block");
  const std::int64_t k = 3 * block_type_info(type()).elements;
  const BlockCase w = random_block_case(type(), 50, k, 3);
  const std::vector<HostTensor> operands{random_tensor(dtype(), {140, k}, 1), w.operand};
  const ir::Attributes attributes = this->attributes();
  if (is_refused(kQuantisedLinear, kQuantisedLinearCpu, operands, attributes)) return;
  expect_any_row_count(kQuantisedLinear, kQuantisedLinearCpu, operands, {0}, {1, 2, 3, 8, 9, 17, 65, 129}, attributes,
                       context);
}

INSTANTIATE_TEST_SUITE_P(Types, BlockLinear,
                         ::testing::Combine(::testing::ValuesIn(block_types()), ::testing::ValuesIn(kBlockInputs)),
                         [](const auto& c) {
                           return test_name_of(std::get<0>(c.param)) + "_" + test_name_of(std::get<1>(c.param));
                         });

// Returns the shape rule's error message for x f32[T, 512] and w u8[8, bytes].
std::string block_error(std::int64_t bytes, ir::Attributes attributes, std::vector<ir::Type> more = {}) {
  std::vector<ir::Type> operands{{DType::kFloat32, {ir::Symbol::kTokens, 512}}, {DType::kUInt8, {8, bytes}}};
  operands.insert(operands.end(), more.begin(), more.end());
  return infer_error(kQuantisedLinear, operands, std::move(attributes));
}

TEST(BlockLinearShapes, OperandsThatDoNotFitAreRefused) {
  const ir::Attributes q4_k = format_of(BlockType::kQ4_K).attributes();
  EXPECT_EQ(block_error(288, q4_k), "");
  EXPECT_THAT(block_error(144, q4_k), HasSubstr("w has 256 columns"));
  EXPECT_THAT(block_error(300, q4_k), HasSubstr("for Q4_K it must be u8[N, a multiple of 144]"));
  EXPECT_THAT(block_error(288, q4_k, {{DType::kFloat32, {8, 2}}}), HasSubstr("take 2 operands, not 3"));
}

TEST(BlockLinearShapes, UnknownTypesAreRefused) {
  for (const char* values : {"q8_k", "f16", "Q4_K", ""})
    EXPECT_THAT(block_error(288, {{"values", std::string(values)}}), HasSubstr("\"q4_k\"")) << values;
}

}  // namespace
}  // namespace tessera::testing
