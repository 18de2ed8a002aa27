// Catches: reshapes that are accepted although the old and the new shape have equal numbers of elements for only one
// value of a symbol, such as the number of tokens; columns that are copied to the wrong part; texts of shapes that are
// misread.
#include "tessera/ops/rows/view.h"

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
using testing::infer_types;

ir::Attributes shape(std::string text) { return {{"shape", std::move(text)}}; }
ir::Attributes sizes(std::vector<std::int64_t> values) { return {{"sizes", std::move(values)}}; }

TEST(View, ParsesShapes) {
  EXPECT_EQ(parse_shape("T, 8, 64").value(), (ir::Shape{Symbol::kTokens, 8, 64}));
  EXPECT_EQ(parse_shape(" 2*T ,8").value(), (ir::Shape{ir::Dim(Symbol::kTokens) * 2, 8}));
  EXPECT_EQ(parse_shape("").value(), ir::Shape{});
  EXPECT_FALSE(parse_shape("T,").ok());
  EXPECT_FALSE(parse_shape("T 8").ok());
  EXPECT_FALSE(parse_shape("x").ok());
  EXPECT_THAT(parse_shape("1,1,1,1,1,1").status().message(), HasSubstr("at most 5"));
}

TEST(View, ReshapeKeepsTheElementCountInEveryBucket) {
  const ir::Type x{DType::kBFloat16, {Symbol::kTokens, 512}};
  EXPECT_EQ(infer_types(kReshape, {x}, shape("T, 8, 64")).value()[0].to_string(), "bf16[T, 8, 64]");
  EXPECT_EQ(infer_error(kReshape, {x}, shape("8*T, 64")), "");
  EXPECT_EQ(infer_error(kReshape, {x}, shape("512*T")), "");
  EXPECT_EQ(infer_error(kReshape, {{DType::kFloat32, {Symbol::kVisionRows, 64}}}, shape("S/4, 256")), "");
  EXPECT_EQ(infer_error(kReshape, {{DType::kFloat32, {Symbol::kTokens, Symbol::kRows, 6}}}, shape("R, 2, 3, T")), "");
  EXPECT_EQ(infer_error(kReshape, {{DType::kFloat32, {1, 1}}}, shape("")), "");
  EXPECT_THAT(infer_error(kReshape, {x}, shape("T, 8, 63")), HasSubstr("same number of elements"));
  EXPECT_THAT(infer_error(kReshape, {x}, shape("B, 8, 64")), HasSubstr("same number of elements"));
  EXPECT_THAT(infer_error(kReshape, {x}, shape("512")), HasSubstr("same number of elements"));
  EXPECT_THAT(infer_error(kReshape, {x}, shape("T + 1, 512")), HasSubstr("same number of elements"));
  EXPECT_THAT(infer_error(kReshape, {x}, shape("T, ?")), HasSubstr("shape = \"T, ?\""));
}

TEST(View, EmptyTakesTheGivenTypeAndShape) {
  ir::Attributes attributes = shape("T, 4");
  attributes.emplace_back("dtype", std::string("i32"));
  EXPECT_EQ(infer_types(kEmpty, {}, attributes).value()[0].to_string(), "i32[T, 4]");
  attributes.back().second = std::string("int");
  EXPECT_THAT(infer_error(kEmpty, {}, attributes), HasSubstr("dtype = \"int\""));
  EXPECT_EQ(infer_types(kEmptyLike, {{DType::kUInt8, {3}}}).value()[0].to_string(), "u8[3]");
  EXPECT_EQ(kReshape.execution, ir::Execution::kView);
  EXPECT_EQ(kEmpty.execution, ir::Execution::kAllocate);
  EXPECT_EQ(kEmptyLike.execution, ir::Execution::kAllocate);
}

TEST(View, SplitCopiesColumns) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8}) {
    for (const std::int64_t rows : {0, 1, 3, 200}) {
      const HostTensor x = testing::random_tensor(dtype, {rows, 3, 101}, 1, 0, 200);
      const auto out = testing::run_op(kSplit, kSplitCpu, {x}, sizes({64, 1, 36}));
      ASSERT_EQ(out.results.size(), 3u);
      std::int64_t first = 0;
      for (const HostTensor& part : out.results) {
        const std::int64_t cols = part.dims.back();
        for (std::int64_t i = 0; i < part.size(); ++i)
          ASSERT_EQ(part.at(i), x.at(i / cols * 101 + first + i % cols)) << "element " << i << " from column " << first;
        first += cols;
      }
      EXPECT_EQ(first, 101);
    }
  }
}

TEST(View, SplitRefusesSizesThatDoNotAddUp) {
  const ir::Type x{DType::kFloat32, {Symbol::kTokens, 100}};
  EXPECT_EQ(infer_types(kSplit, {x}, sizes({60, 40})).value()[1].to_string(), "f32[T, 40]");
  EXPECT_THAT(infer_error(kSplit, {x}, sizes({60, 30})), HasSubstr("60, 30 leave 10 of the 100 columns"));
  EXPECT_THAT(infer_error(kSplit, {x}, sizes({60, 50})), HasSubstr("60, 50 do not divide the 100 columns"));
  EXPECT_THAT(infer_error(kSplit, {x}, sizes({120, -20})), HasSubstr("do not divide"));
  EXPECT_THAT(infer_error(kSplit, {x}, sizes({100, 0})), HasSubstr("do not divide"));
  EXPECT_THAT(infer_error(kSplit, {x}, sizes({})), HasSubstr("takes 1 to 8 sizes"));
  EXPECT_THAT(infer_error(kSplit, {x}, sizes(std::vector<std::int64_t>(9, 1))), HasSubstr("takes 1 to 8 sizes"));
  EXPECT_THAT(infer_error(kSplit, {{DType::kFloat32, {}}}, sizes({1})), HasSubstr("at least 1 dimensions"));
}

TEST(View, SplitRowsAreIndependent) {
  const HostTensor x = testing::random_tensor(DType::kFloat32, {40, 1030}, 1);
  testing::expect_rows_independent(kSplit, kSplitCpu, {x}, {0}, sizes({1000, 30}));
}

}  // namespace
}  // namespace tessera
