// Catches: nodes that are merged although a node in between writes an operand; nodes that are merged although their
// attributes or the order of their operands differ; results that share memory and are written afterwards; allocations,
// writes and collectives that are merged; and two outputs that are merged into one.
#include "tessera/compile/passes/merge_common_subexpressions.h"

#include "tessera/compile/passes/pass_test_util.h"

namespace tessera {
namespace {

using testing::after;
using testing::graph;
using testing::kUnchanged;

std::string merged(std::string_view statements) { return after(merge_common_subexpressions, statements); }

TEST(MergeCommonSubexpressions, MergesEqualNodes) {
  EXPECT_EQ(merged(R"(%a = rms_norm(%x, %w) {eps = 1e-06} %b = rms_norm(%x, %w) {eps = 1e-06}
                      %y = mul(%a, %b) return %y)"),
            graph("%a = rms_norm(%x, %w) {eps = 1e-06} %y = mul(%a, %a) return %y"));
}

TEST(MergeCommonSubexpressions, MergesChains) {
  EXPECT_EQ(merged(R"(%a = silu(%x) %b = silu(%x) %c = gelu(%a) %d = gelu(%b)
                      %e, %f = split(%c) {sizes = [4, 4]} %g, %i = split(%d) {sizes = [4, 4]}
                      %y = mul(%e, %i) return %y)"),
            graph("%a = silu(%x) %c = gelu(%a) %e, %f = split(%c) {sizes = [4, 4]} %y = mul(%e, %f) return %y"));
}

TEST(MergeCommonSubexpressions, MergesAddAndMulInEitherOrder) {
  EXPECT_EQ(merged("%a = add(%x, %r) %b = add(%r, %x) %y = mul(%a, %b) return %y"),
            graph("%a = add(%x, %r) %y = mul(%a, %a) return %y"));
}

TEST(MergeCommonSubexpressions, FalseEqualsAnAbsentBoolean) {
  EXPECT_EQ(merged("%a = linear(%x, %m) {bias = false} %b = linear(%x, %m) %y = add(%a, %b) return %y"),
            graph("%a = linear(%x, %m) {bias = false} %y = add(%a, %a) return %y"));
}

TEST(MergeCommonSubexpressions, DoesNotMergeOtherAttributesOrOperands) {
  for (const char* differ :
       {"%a = scale(%x) {factor = 2.0} %b = scale(%x) {factor = -2.0} %y = mul(%a, %b) return %y",
        "%a = gelu(%x) {tanh = true} %b = gelu(%x) {tanh = false} %y = mul(%a, %b) return %y",
        "%a = gelu(%x) {tanh = false} %b = gelu(%x) %y = mul(%a, %b) return %y",
        "%a = silu(%x) %b = silu(%r) %y = mul(%a, %b) return %y", "%a = add(%x, %r) %y = mul(%x, %r) return %a, %y",
        "%a = reshape(%x) {shape = \"2*T, 4\"} %b = reshape(%x) {shape = \"T, 2, 4\"} %y = silu(%a) %z = silu(%b) "
        "return %y, %z"})
    EXPECT_EQ(merged(differ), kUnchanged) << differ;
}

TEST(MergeCommonSubexpressions, DoesNotMergeAcrossAWrite) {
  EXPECT_EQ(merged("%a = silu(%s) all_reduce(mut %s) %b = silu(%s) %y = add(%a, %b) return %y"), kUnchanged);
  EXPECT_EQ(merged(R"(%v = reshape(%s) {shape = "8*T"} %a = silu(%s) all_reduce(mut %v) %b = silu(%s)
                      %y = add(%a, %b) return %y)"),
            kUnchanged)
      << "through a view";
  EXPECT_EQ(merged("all_reduce(mut %s) %a = silu(%s) %b = silu(%s) %y = add(%a, %b) all_reduce(mut %s) return %y"),
            graph("all_reduce(mut %s) %a = silu(%s) %y = add(%a, %a) all_reduce(mut %s) return %y"))
      << "writes before and after do no harm";
}

TEST(MergeCommonSubexpressions, DoesNotMergeResultsThatAreWritten) {
  EXPECT_EQ(merged("%a = silu(%x) %b = silu(%x) all_reduce(mut %b) %y = add(%a, %b) return %y"), kUnchanged);
  EXPECT_EQ(merged("%a = silu(%x) all_reduce(mut %a) %b = silu(%x) %y = add(%a, %b) return %y"), kUnchanged);
}

TEST(MergeCommonSubexpressions, MergesViewsOfTheSameMemory) {
  EXPECT_EQ(merged(R"(%a = reshape(%s) {shape = "8*T"} all_reduce(mut %a) %b = reshape(%s) {shape = "8*T"}
                      %y = silu(%b) return %y)"),
            graph(R"(%a = reshape(%s) {shape = "8*T"} all_reduce(mut %a) %y = silu(%a) return %y)"));
}

TEST(MergeCommonSubexpressions, MemoryWritesAndRanksAreNotMerged) {
  EXPECT_EQ(merged(R"(%q, %z = split(%x) {sizes = [4, 4]} %a = empty_like(%q) %b = empty_like(%q)
                      kv_store(%q, %z, %slots, mut %kc, mut %vc) kv_store(%q, %z, %slots, mut %kc, mut %vc) return)"),
            kUnchanged);
  EXPECT_EQ(merged("%a = all_gather(%x) {ranks = 2} %b = all_gather(%x) {ranks = 2} %y = add(%a, %b) return %y"),
            kUnchanged);
}

TEST(MergeCommonSubexpressions, OutputsStayApartAndKeepTheirNames) {
  EXPECT_EQ(merged("%a = silu(%x) %b = silu(%x) return %a, %b"), kUnchanged);
  EXPECT_EQ(merged("%a = silu(%x) %b = silu(%x) %c = gelu(%a) return %c, %b"),
            graph("%b = silu(%x) %c = gelu(%b) return %c, %b"));
}

}  // namespace
}  // namespace tessera
