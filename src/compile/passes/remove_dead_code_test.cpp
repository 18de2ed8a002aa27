// Catches: a write that is removed although the memory is read later; a collective that is removed on one rank only;
// declarations that are removed; and chains of unused nodes that stay.
#include "tessera/compile/passes/remove_dead_code.h"

#include "tessera/compile/passes/pass_test_util.h"

namespace tessera {
namespace {

using testing::after;
using testing::graph;
using testing::kUnchanged;

TEST(RemoveDeadCode, RemovesADeadChain) {
  EXPECT_EQ(after(remove_dead_code, "%a = silu(%x) %b = scale(%a) {factor = 2.0} %y = gelu(%x) return %y"),
            graph("%y = gelu(%x) return %y"));
  EXPECT_EQ(after(remove_dead_code, "%a = silu(%x) %v = reshape(%a) {shape = \"8*T\"} %e = empty_like(%x) return"),
            graph("return"));
}

TEST(RemoveDeadCode, OneNeededResultKeepsANode) {
  EXPECT_EQ(after(remove_dead_code, "%a, %b = split(%x) {sizes = [4, 4]} return %b"), kUnchanged);
  EXPECT_EQ(after(remove_dead_code, "%n, %sum = add_rms_norm(%x, %r, %w) {eps = 1e-06} return %sum"), kUnchanged);
}

TEST(RemoveDeadCode, WritesStay) {
  EXPECT_EQ(after(remove_dead_code, R"(%k, %v = split(%x) {sizes = [4, 4]}
                                       kv_store(%k, %v, %slots, mut %kc, mut %vc) return)"),
            kUnchanged);
  EXPECT_EQ(after(remove_dead_code, R"(%a = silu(%x) %v = reshape(%a) {shape = "8*T"} all_reduce(mut %v)
                                       %y = gelu(%a) return %y)"),
            kUnchanged);
}

TEST(RemoveDeadCode, ExchangesStay) {
  EXPECT_EQ(after(remove_dead_code, "%g = all_gather(%x) {ranks = 2} %y = silu(%x) return %y"), kUnchanged);
  EXPECT_EQ(after(remove_dead_code, "%g = all_gather_rows(%x) {ranks = 2} %y = silu(%x) return %y"), kUnchanged);
}

}  // namespace
}  // namespace tessera
