// Catches: rows that use the GGUF blocks of another expert; down matrices that are not read as the type that the
// attribute `down_values` gives; sums that depend on other rows.
#include <gmock/gmock.h>

#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/quantised/blocks/block_test_util.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct BlockExpertsSizes {
  std::int64_t tokens, top_k, experts, hidden, intermediate;
};

struct BlockExpertsTypes {
  BlockType gate_up, down;
};

struct BlockExpertsCase {
  std::vector<HostTensor> operands;
  ir::Attributes attributes;
  std::vector<double> gate_up;  // [experts, 2 intermediate, hidden]
  std::vector<double> down;     // [experts, hidden, intermediate]
};

BlockExpertsCase make_block_case(const BlockExpertsTypes& types, const BlockInputs& in, const BlockExpertsSizes& s,
                                 bool biases) {
  BlockCase gate_up = random_block_case(types.gate_up, s.experts * 2 * s.intermediate, s.hidden, 3);
  BlockCase down = random_block_case(types.down, s.experts * s.hidden, s.intermediate, 4);
  double squares = 0;
  for (const double number : gate_up.numbers) squares += number * number;
  const double mean = std::sqrt(squares / static_cast<double>(gate_up.numbers.size()));
  // With x between −`most` and `most`, the magnitudes of gate and up are near 1.
  const double most = 2 / (mean * std::sqrt(static_cast<double>(s.hidden)));
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < s.tokens * s.top_k; ++i)
    ids.push_back(i % 11 == 7 ? -1 : static_cast<std::int32_t>((i * i + i / 3) % s.experts));
  BlockExpertsCase c;
  c.operands = {random_tensor(in.dtype, {s.tokens, s.hidden}, 1, -most, most), int_tensor({s.tokens, s.top_k}, ids),
                random_tensor(DType::kFloat32, {s.tokens, s.top_k}, 2, 0, 1), gate_up.operand, down.operand};
  if (biases) c.operands.push_back(random_tensor(in.dtype, {s.experts, 2 * s.intermediate}, 5));
  if (biases) c.operands.push_back(random_tensor(in.dtype, {s.experts, s.hidden}, 6));
  c.attributes = format_of(types.gate_up).attributes();
  c.attributes.emplace_back("down_values", std::get<std::string>(format_of(types.down).attributes()[0].second));
  c.attributes.emplace_back("quantised", true);
  c.attributes.emplace_back("inputs", std::string(in.inputs));
  c.attributes.emplace_back("gate_up_bias", biases);
  c.attributes.emplace_back("down_bias", biases);
  c.gate_up = std::move(gate_up.numbers);
  c.down = std::move(down.numbers);
  return c;
}

double block_dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> expected_of_blocks(const BlockExpertsCase& c, const BlockExpertsSizes& s, bool rounds) {
  const bool biases = c.operands.size() > 5;
  const std::vector<double> x = rounds ? rounded_to_eight_bits(c.operands[0]) : c.operands[0].values();
  std::vector<double> y(static_cast<std::size_t>(s.tokens * s.hidden));
  HostTensor both = poisoned_tensor(c.operands[0].dtype, {1, s.intermediate});
  for (std::int64_t pair = 0; pair < s.tokens * s.top_k; ++pair) {
    const auto e = static_cast<std::int64_t>(c.operands[1].at(pair));
    if (e < 0) continue;
    const std::int64_t token = pair / s.top_k;
    const auto sum = [&](std::int64_t row) {
      return block_dot(x.data() + token * s.hidden, c.gate_up.data() + (e * 2 * s.intermediate + row) * s.hidden,
                       s.hidden) +
             (biases ? c.operands[5].at(e * 2 * s.intermediate + row) : 0);
    };
    for (std::int64_t i = 0; i < s.intermediate; ++i) {
      const double gate = sum(i);
      both.set(i, gate / (1 + std::exp(-gate)) * sum(s.intermediate + i));
    }
    const std::vector<double> activated = rounds ? rounded_to_eight_bits(both) : both.values();
    for (std::int64_t h = 0; h < s.hidden; ++h)
      y[static_cast<std::size_t>(token * s.hidden + h)] +=
          c.operands[2].at(pair) *
          (block_dot(activated.data(), c.down.data() + (e * s.hidden + h) * s.intermediate, s.intermediate) +
           (biases ? c.operands[6].at(e * s.hidden + h) : 0));
  }
  return y;
}

class BlockExperts : public ::testing::TestWithParam<std::tuple<BlockExpertsTypes, BlockInputs>> {
 protected:
  const BlockExpertsTypes& types() const { return std::get<0>(GetParam()); }
  BlockInputs inputs() const { return std::get<1>(GetParam()); }
  DType dtype() const { return inputs().dtype; }
};

TEST_P(BlockExperts, MatchTheReference) {
  for (const BlockExpertsSizes& s : {BlockExpertsSizes{1, 2, 8, 256, 512}, BlockExpertsSizes{9, 3, 4, 512, 256},
                                     BlockExpertsSizes{150, 2, 3, 256, 256}})
    for (const bool biases : {false, true}) {
      const BlockExpertsCase c = make_block_case(types(), inputs(), s, biases);
      if (is_refused(kMoeExperts, kMoeExpertsCpu, c.operands, c.attributes)) return;
      const bool rounds = rounds_inputs(types().gate_up, inputs()) && rounds_inputs(types().down, inputs());
      const std::vector<double> expected = expected_of_blocks(c, s, rounds);
      double greatest = 1;
      for (const double value : expected) greatest = std::max(greatest, std::abs(value));
      const double of_one = dtype() == DType::kFloat32 ? 1e-5 : dtype() == DType::kFloat16 ? 6e-3 : 2e-2;
      const OpOutcome out = run_op(kMoeExperts, kMoeExpertsCpu, c.operands, c.attributes);
      expect_close(out.results[0], expected, {of_one * greatest, 0}, test_name_of(types().gate_up));
    }
}

TEST_P(BlockExperts, DeterministicBitsDoNotDependOnOtherRows) {
  ForwardContext context;
  context.limits.deterministic = true;
  const BlockExpertsCase c = make_block_case(types(), inputs(), {80, 3, 5, 256, 256}, false);
  if (is_refused(kMoeExperts, kMoeExpertsCpu, c.operands, c.attributes)) return;
  expect_any_row_count(kMoeExperts, kMoeExpertsCpu, c.operands, {0, 1, 2}, {1, 3, 9, 60}, c.attributes, context);
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockExperts,
                         ::testing::Combine(::testing::Values(BlockExpertsTypes{BlockType::kQ4_K, BlockType::kQ6_K},
                                                              BlockExpertsTypes{BlockType::kQ8_0, BlockType::kQ8_0},
                                                              BlockExpertsTypes{BlockType::kMXFP4, BlockType::kQ5_1},
                                                              BlockExpertsTypes{BlockType::kQ2_K, BlockType::kQ3_K}),
                                            ::testing::ValuesIn(kBlockInputs)),
                         [](const auto& c) {
                           const BlockExpertsTypes& types = std::get<0>(c.param);
                           return test_name_of(types.gate_up) + "_" + test_name_of(types.down) + "_" +
                                  test_name_of(std::get<1>(c.param));
                         });

TEST(BlockExpertsShapes, BothOrNeitherMatrixHasBlocks) {
  BlockExpertsCase c = make_block_case({BlockType::kQ8_0, BlockType::kQ4_0}, kBlockInputs[0], {1, 1, 1, 32, 32}, false);
  std::vector<ir::Type> operands;
  for (const HostTensor& t : c.operands) operands.push_back(t.type());
  EXPECT_EQ(infer_error(kMoeExperts, operands, c.attributes), "");
  for (auto& [name, value] : c.attributes)
    if (name == "down_values") value = std::string("e4m3");
  EXPECT_THAT(infer_error(kMoeExperts, operands, c.attributes),
              HasSubstr("down_values = \"e4m3\"; either both or neither"));
}

}  // namespace
}  // namespace tessera::testing
