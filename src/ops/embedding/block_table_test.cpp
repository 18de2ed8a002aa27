// Tests embedding tables that are stored as GGUF blocks. Catches: a token that gets another token's row; numbers that
// differ from those that the blocks encode; a scale that is left out; a rank that uses a wrong slice of the table.
#include "tessera/ops/embedding/block_table.h"

#include <gmock/gmock.h>

#include "tessera/ops/embedding/embedding.h"
#include "tessera/ops/quantised/blocks/block_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

class BlockTable : public ::testing::TestWithParam<std::tuple<BlockType, DType>> {};

TEST_P(BlockTable, RowsAreThoseOfTheBlocks) {
  const auto& [type, dtype] = GetParam();
  const std::int64_t cols = 2 * block_type_info(type).elements;
  const BlockCase table = random_block_case(type, 37, cols, 3);
  const HostTensor given = random_tensor(dtype, {2, cols}, 5);
  const std::vector<std::int32_t> ids{100, 116, 136, 137, 99, 105, -2};
  const std::vector<std::int32_t> rows{-1, -1, -1, -1, -1, 1, -1};
  for (const double scale : {1.0, 8.0})
    for (const std::int64_t first : {100, 0}) {
      ir::Attributes attributes = format_of(type).attributes();
      attributes.emplace_back("dtype", std::string(ir::dtype_name(dtype)));
      attributes.emplace_back("scale", scale);
      attributes.emplace_back("first_row", first);
      attributes.emplace_back("table_rows", std::int64_t{200});
      std::vector<std::int32_t> of_slice = ids;
      for (std::int32_t& id : of_slice) id += static_cast<std::int32_t>(first - 100);
      const std::vector<HostTensor> operands{int_tensor({7}, of_slice), table.operand, int_tensor({7}, rows), given};
      if (is_refused(kEmbedding, kEmbeddingCpu, operands, attributes)) return;
      std::vector<double> expected;
      for (std::size_t t = 0; t < ids.size(); ++t)
        for (std::int64_t c = 0; c < cols; ++c) {
          const std::int64_t row = ids[t] - 100;
          const bool inside = row >= 0 && row < 37;
          const double number = inside ? table.numbers[static_cast<std::size_t>(row * cols + c)] * scale : 0;
          expected.push_back(rows[t] < 0 ? number : first == 0 ? given.at(cols + c) : 0);
        }
      const OpOutcome out = run_op(kEmbedding, kEmbeddingCpu, operands, attributes);
      expect_close(out.results[0], expected, tolerance(dtype), test_name_of(type));
    }
}

INSTANTIATE_TEST_SUITE_P(Types, BlockTable,
                         ::testing::Combine(::testing::Values(BlockType::kQ8_0, BlockType::kQ4_K, BlockType::kQ6_K,
                                                              BlockType::kQ2_K),
                                            ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16)),
                         [](const auto& c) {
                           return test_name_of(std::get<0>(c.param)) + "_" +
                                  std::string(ir::dtype_name(std::get<1>(c.param)));
                         });

TEST(BlockTableShapes, TablesThatHaveNoNumbersAreRefused) {
  const std::vector<ir::Type> operands{{DType::kInt32, {ir::Symbol::kTokens}}, {DType::kUInt8, {16, 144}}};
  ir::Attributes attributes = format_of(BlockType::kQ4_K).attributes();
  const Result<std::vector<ir::Type>> types = infer_types(kEmbedding, operands, attributes);
  ASSERT_TRUE(types.ok()) << types.status().message();
  EXPECT_EQ((*types)[0].to_string(), "f32[T, 256]");
  EXPECT_THAT(infer_error(kEmbedding, operands), HasSubstr("table"));
  attributes.emplace_back("dtype", std::string("i32"));
  EXPECT_THAT(infer_error(kEmbedding, operands, attributes), HasSubstr("dtype = \"i32\""));
  EXPECT_THAT(infer_error(kEmbedding, operands, {{"values", std::string("int8")}}), HasSubstr("type of blocks"));
}

}  // namespace
}  // namespace tessera::testing
