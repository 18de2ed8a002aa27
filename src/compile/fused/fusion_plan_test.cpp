// Catches: a group of fused operators that lacks an operator; an operator that joins a group although it must run later
// than the group; and an operator that its group computes wrongly.
#include "tessera/compile/fused/fusion_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compile/passes/pass_test_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Declarations that these tests use in addition to those of pass_test_util.h.
constexpr std::string_view kMore = R"(
  input %wide: f32[T, 16]
  input %keys: f32[T, 4]
  input %table: f32[T, 4]
  input %short: f32[T, 2]
)";

std::string plan(std::string_view statements) {
  const ir::Graph graph = testing::parse_statements(std::string(kMore) + std::string(statements));
  const Result<FusionPlan> made = plan_fusion(graph, built_in_ops());
  return made.ok() ? to_text(*made) : made.status().to_string();
}

TEST(FusionPlan, ResidualAndNormAreOneKernel) {
  EXPECT_EQ(plan("%sum: f32[T, 8] = add(%x, %r) %y: f32[T, 8] = rms_norm(%sum, %w) {eps = 0.5} return %y, %sum"),
            R"(%sum: f32[T, 8], %y: f32[T, 8] = fused.add.rms_norm(%x, %r, %w)
  rows T
  %0: f32[8] = load operand 0
  %1: f32[8] = load operand 1
  %2: f32[8] = add(%0, %1)
  %3: f32[8] = weight operand 2
  %4: f32[8] = rms_norm(%2, %3) {eps = 0.5}
  store %2 in operand 3: f32
  store %4 in operand 4: f32
)");
}

// A hand-fused operator is replaced by simpler operators, which join a group. Values that only the group reads are not
// stored.
TEST(FusionPlan, AHandFusedOperatorIsRegrouped) {
  EXPECT_EQ(plan("%n: f32[T, 8], %s2: f32[T, 8] = add_rms_norm(%x, %r, %w) {eps = 0.5} %y: f32[T, 8] = scale(%n) "
                 "{factor = 2.0} return %y"),
            R"(%y: f32[T, 8] = fused.add.rms_norm.scale(%x, %r, %w)
  rows T
  %0: f32[8] = load operand 0
  %1: f32[8] = load operand 1
  %2: f32[8] = add(%0, %1)
  %3: f32[8] = weight operand 2
  %4: f32[8] = rms_norm(%2, %3) {eps = 0.5}
  %5: f32[8] = scale(%4) {factor = 2}
  store %5 in operand 3: f32
)");
}

TEST(FusionPlan, AMatmulStandsBetweenGroups) {
  const std::string text = plan(
      "%a: f32[T, 8] = silu(%x) %a2: f32[T, 8] = mul(%a, %r) %l: f32[T, 8] = linear(%a2, %m) "
      "%b: f32[T, 8] = silu(%l) %c: f32[T, 8] = add(%b, %a2) return %c");
  EXPECT_THAT(text, HasSubstr("%a2: f32[T, 8] = fused.silu.mul(%x, %r)"));
  EXPECT_THAT(text, HasSubstr("%l: f32[T, 8] = linear(%a2, %m)"));
  EXPECT_THAT(text, HasSubstr("%c: f32[T, 8] = fused.silu.add(%l, %a2)"));
}

TEST(FusionPlan, QueriesKeysAndValuesAreOneKernel) {
  const std::string text = plan(
      "%q: f32[T, 8], %k: f32[T, 4], %v: f32[T, 4] = split(%wide) {sizes = [8, 4, 4]} "
      "%qn: f32[T, 8] = head_norm(%q, %hw) {eps = 0.5} %kn: f32[T, 4] = head_norm(%k, %kw) {eps = 0.5} "
      "%qr: f32[T, 8] = rotary(%qn, %table) {head_dim = 4} %kr: f32[T, 4] = rotary(%kn, %table) {head_dim = 4} "
      "kv_store(%kr, %v, %slots, mut %kc, mut %vc) return %qr");
  EXPECT_EQ(text,
            R"(%qr: f32[T, 8] = fused.split.rms_norm.rotary.kv_store(%wide, %hw, %kw, %table, %slots, mut %kc, mut %vc)
  rows T
  %0: f32[16] = load operand 0
  %1: f32[8] = slice(%0) {offset = 0}
  %2: f32[4] = slice(%0) {offset = 8}
  %3: f32[4] = slice(%0) {offset = 12}
  %4: f32[4] = weight operand 1
  %5: f32[8] = rms_norm(%1, %4) {eps = 0.5}
  %6: f32[4] = weight operand 2
  %7: f32[4] = rms_norm(%2, %6) {eps = 0.5}
  %8: f32[4] = load operand 3
  %9: f32[8] = rotary(%5, %8) {head_dim = 4}
  %10: f32[4] = rotary(%7, %8) {head_dim = 4}
  %11: i32[1] = load operand 4
  store %10 at %11 in operand 5: f32
  store %3 at %11 in operand 6: f32
  store %9 in operand 7: f32
)");
}

// Rotary with interleaved pairs cannot be part of a row kernel. The rest of the graph is still fused.
TEST(FusionPlan, AnOperatorWithoutARowFormStaysAnOperator) {
  const std::string text = plan(
      "%a: f32[T, 8] = rotary(%x, %table) {head_dim = 4, interleaved = true} %b: f32[T, 8] = silu(%a) "
      "%c: f32[T, 8] = add(%b, %r) return %c");
  EXPECT_THAT(text, HasSubstr("%a: f32[T, 8] = rotary(%x, %table)"));
  EXPECT_THAT(text, HasSubstr("%c: f32[T, 8] = fused.silu.add(%a, %r)"));
}

// If only a part of each head is rotated, the native form of the hand-fused operator would need several kernels. The
// operator therefore stays whole.
TEST(FusionPlan, AnOperatorThatWouldFallApartStaysWhole) {
  const std::string text =
      plan("%q: f32[T, 8] = qkv_rope_store(%wide, %short, %slots, mut %kc, mut %vc) {heads = 2} return %q");
  EXPECT_THAT(text, HasSubstr("qkv_rope_store(%wide, %short"));
  EXPECT_THAT(text, Not(HasSubstr("fused")));
}

TEST(FusionPlan, StoresInACacheWithScalesStayOperators) {
  const std::string text = plan(
      "state %k8: f8e4m3[P, 16, 1, 4] state %v8: f8e4m3[P, 16, 1, 4] weight %one: f32[1] "
      "%a: f32[T, 8] = silu(%x) %b: f32[T, 8] = scale(%a) {factor = 2.0} "
      "kv_store(%keys, %keys, %slots, mut %k8, mut %v8, %one, %one) return %b");
  EXPECT_THAT(text, HasSubstr("kv_store(%keys, %keys, %slots"));
  EXPECT_THAT(text, HasSubstr("fused.silu.scale(%x)"));
}

TEST(FusionPlan, AWriteKeepsItsPlace) {
  // silu(%flat) reads the cache after kv_store has written it. So silu(%flat) must stay after kv_store, and must not
  // join an earlier group.
  const std::string text = plan(
      "%a: f32[T, 8] = silu(%x) %b: f32[T, 8] = scale(%a) {factor = 2.0} kv_store(%keys, %keys, %slots, mut %kc, mut "
      "%vc) "
      "%flat: f32[P, 64] = reshape(%kc) {shape = \"P, 64\"} %c: f32[P, 64] = silu(%flat) "
      "%d: f32[P, 64] = scale(%c) {factor = 2.0} return %b, %d");
  EXPECT_LT(text.find("kv_store("), text.find("fused.silu.scale(%kc)")) << text;
}

TEST(FusionPlan, ReductionsOfOtherLengthsAreOtherKernels) {
  const std::string text = plan(
      "%a: f32[T, 8] = rms_norm(%x, %w) {eps = 0.5} %b: f32[T, 8] = add(%a, %r) %h2: f32[T, 8] = head_norm(%b, %hw) "
      "{eps = 0.5} %c: f32[T, 8] = silu(%h2) return %c");
  EXPECT_THAT(text, HasSubstr("fused.rms_norm.add(%x, %w, %r)"));
  EXPECT_THAT(text, HasSubstr("fused.rms_norm.silu(%b, %hw)"));
}

TEST(FusionPlan, AReshapeDoesNotSplitAGroup) {
  const std::string text = plan(
      "%a: f32[T, 8] = silu(%x) %pairs: f32[2*T, 4] = reshape(%a) {shape = \"2*T, 4\"} %b: f32[2*T, 4] = silu(%pairs) "
      "return %b");
  EXPECT_THAT(text, HasSubstr("%b: f32[2*T, 4] = fused.silu(%x)"));
}

}  // namespace
}  // namespace tessera
