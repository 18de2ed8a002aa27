// Catches: a product of factors that is wrong or out of range; a removed cast that loses precision; and a chain that is
// folded although a node in between overwrites what the first node has read.
#include "tessera/compile/passes/fold_constants.h"

#include "tessera/compile/passes/pass_test_util.h"

namespace tessera {
namespace {

using testing::after;
using testing::graph;
using testing::kUnchanged;

TEST(FoldConstants, ScalesMultiply) {
  EXPECT_EQ(after(fold_constants, R"(%a = scale(%x) {factor = 4.0} %b = scale(%a) {factor = 0.5}
                                     %c = scale(%b) {factor = -3.0} return %c)"),
            graph(R"(%a = scale(%x) {factor = 4.0} %b = scale(%x) {factor = 2.0}
                     %c = scale(%x) {factor = -6.0} return %c)"));
  EXPECT_EQ(after(fold_constants, "%a = scale(%x) {factor = 0.0} %b = scale(%a) {factor = -2.0} return %b"),
            graph("%a = scale(%x) {factor = 0.0} %b = scale(%x) {factor = -0.0} return %b"));
}

TEST(FoldConstants, FactorsOutOfFloat32Stay) {
  EXPECT_EQ(after(fold_constants, "%a = scale(%x) {factor = 1e30} %b = scale(%a) {factor = 1e30} return %b"),
            kUnchanged);
  EXPECT_EQ(after(fold_constants, "%a = scale(%x) {factor = 1e-30} %b = scale(%a) {factor = 1e-30} return %b"),
            kUnchanged);
}

TEST(FoldConstants, KeepsAScaleThatIsUsedElsewhere) {
  EXPECT_EQ(after(fold_constants, R"(%a = scale(%x) {factor = 4.0} %b = scale(%a) {factor = 0.5}
                                     %y = add(%a, %b) return %y)"),
            kUnchanged);
  EXPECT_EQ(after(fold_constants, "%a = scale(%x) {factor = 4.0} %b = scale(%a) {factor = 0.5} return %a, %b"),
            kUnchanged);
}

TEST(FoldConstants, ViewsOfViews) {
  EXPECT_EQ(after(fold_constants, R"(%a = reshape(%x) {shape = "2*T, 4"} %b = reshape(%a) {shape = "T, 2, 4"}
                                     %y = silu(%b) return %y)"),
            graph(R"(%a = reshape(%x) {shape = "2*T, 4"} %b = reshape(%x) {shape = "T, 2, 4"}
                     %y = silu(%b) return %y)"));
}

TEST(FoldConstants, RemovesACastThatLosesNothing) {
  EXPECT_EQ(after(fold_constants, R"(%a = cast(%h) {dtype = "f32"} %b = cast(%a) {dtype = "f16"} return %b)"),
            graph(R"(%a = cast(%h) {dtype = "f32"} %b = cast(%h) {dtype = "f16"} return %b)"));
  const std::string there_and_back = after(fold_constants, R"(%a = cast(%h) {dtype = "f32"}
                                                              %b = cast(%a) {dtype = "bf16"} %y = silu(%b) return %y)");
  EXPECT_EQ(there_and_back,
            graph(R"(%a = cast(%h) {dtype = "f32"} %b = cast(%h) {dtype = "bf16"} %y = silu(%b) return %y)"));
}

TEST(FoldConstants, KeepsACastThatLosesSomething) {
  EXPECT_EQ(after(fold_constants, R"(%a = cast(%x) {dtype = "bf16"} %b = cast(%a) {dtype = "f32"} return %b)"),
            kUnchanged);
  EXPECT_EQ(after(fold_constants, R"(%a = cast(%h) {dtype = "f16"} %b = cast(%a) {dtype = "bf16"} return %b)"),
            kUnchanged)
      << "bfloat16 has the greater range";
}

TEST(FoldConstants, DoesNotFoldAcrossAWrite) {
  EXPECT_EQ(after(fold_constants, R"(%a = scale(%s) {factor = 4.0} all_reduce(mut %s)
                                     %b = scale(%a) {factor = 0.5} return %b)"),
            kUnchanged);
  EXPECT_EQ(after(fold_constants, R"(%a = cast(%h) {dtype = "f32"} all_reduce(mut %a)
                                     %b = cast(%a) {dtype = "f16"} return %b)"),
            kUnchanged);
}

}  // namespace
}  // namespace tessera
