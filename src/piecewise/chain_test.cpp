// Catches: a value of a chained graph that is linked to a wrong value or to no value; inputs or outputs that are lost
// or repeated; and a chain that is not a valid graph.
#include "tessera/piecewise/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/ir/verify.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ir::Graph graph(std::string_view text) {
  Result<ir::Graph> parsed = ir::parse_graph(text, &built_in_ops());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? *std::move(parsed) : ir::Graph{};
}

// Returns the canonical text of the chain, or its error.
std::string chained(std::vector<std::string_view> texts) {
  std::vector<ir::Graph> graphs;
  for (const std::string_view text : texts) graphs.push_back(graph(text));
  std::vector<const ir::Graph*> pointers;
  for (const ir::Graph& g : graphs) pointers.push_back(&g);
  const Result<ir::Graph> result = chain("all", pointers);
  if (!result.ok()) return result.status().message();
  const Status sound = ir::verify(*result, built_in_ops());
  EXPECT_TRUE(sound.ok()) << sound.to_string() << "\n" << ir::to_text(*result);
  return ir::to_text(*result);
}

constexpr const char* kBody = R"(graph @body {
  group "full" paged layers [0]
  input %ids: i32[T]
  input %given_rows: i32[T]
  input %given: f32[8, 4]
  weight %table: f32[16, 4]
  %hidden: f32[T, 4] = embedding(%ids, %table, %given_rows, %given)
  return %hidden
})";
constexpr const char* kHead = R"(graph @head {
  input %hidden: f32[T, 4]
  input %rows: i32[R]
  weight %table: f32[16, 4]
  %wanted: f32[R, 4] = gather_rows(%hidden, %rows)
  %logits: f32[R, 16] = linear(%wanted, %table)
  return %logits
})";
constexpr const char* kGreedy = R"(graph @greedy {
  input %logits: f32[R, 16]
  %ids_out: i32[R] = argmax(%logits)
  return %ids_out
})";

TEST(Chain, LinksOutputsToInputsAndSharesEqualNames) {
  EXPECT_EQ(chained({kBody, kHead, kGreedy}), R"(graph @all {
  group "full" paged layers [0]
  input %ids: i32[T]
  input %given_rows: i32[T]
  input %given: f32[8, 4]
  input %rows: i32[R]
  weight %table: f32[16, 4]
  %hidden: f32[T, 4] = embedding(%ids, %table, %given_rows, %given)
  %wanted: f32[R, 4] = gather_rows(%hidden, %rows)
  %logits: f32[R, 16] = linear(%wanted, %table)
  %ids_out: i32[R] = argmax(%logits)
  return %hidden, %logits, %ids_out
}
)");
}

TEST(Chain, OneGraphStaysAsItIs) {
  const std::string text = chained({kHead});
  const ir::Graph head = graph(kHead);
  ir::Graph renamed = graph(text);
  renamed.name = "head";
  EXPECT_TRUE(ir::structurally_equal(renamed, head)) << text;
}

TEST(Chain, NoGraphsGiveAnEmptyGraph) { EXPECT_EQ(chained({}), "graph @all {\n  return\n}\n"); }

TEST(Chain, WithoutALinkInputsStayInputs) {
  EXPECT_THAT(chained({kHead, kBody}), AllOf(HasSubstr("input %hidden: f32[T, 4]"), HasSubstr("return %logits, ")));
}

TEST(Chain, ResultsOfOneNameAreToldApart) {
  const std::string text = chained({"graph @p { input %x: f32[T] %y = scale(%x) {factor = 2.0} return %y }",
                                    "graph @q { input %x: f32[T] %y = scale(%x) {factor = 3.0} return %y }"});
  EXPECT_THAT(text, AllOf(HasSubstr("%y: f32[T] = scale(%x) {factor = 2.0}"),
                          HasSubstr("%q.y: f32[T] = scale(%x) {factor = 3.0}"), HasSubstr("return %y, %q.y")));
}

// Graphs p and q both return a value named y. Graph r reads the y of q, because q comes after p.
TEST(Chain, ALaterGraphReadsANamesNewestOutput) {
  const std::string text = chained({"graph @p { input %x: f32[T] %y = scale(%x) {factor = 2.0} return %y }",
                                    "graph @q { input %x: f32[T] %y = scale(%x) {factor = 3.0} return %y }",
                                    "graph @r { input %y: f32[T] %z = scale(%y) {factor = 4.0} return %z }"});
  EXPECT_THAT(text, HasSubstr("%z: f32[T] = scale(%q.y)"));
}

TEST(Chain, AnInnerResultIsNoOutput) {
  // Graph p makes %t but does not return it, so the input %t of graph r is another value.
  const std::string text =
      chained({"graph @p { input %x: f32[T] %t = scale(%x) {factor = 2.0} %y = scale(%t) {factor = 2.0} return %y }",
               "graph @r { input %t: f32[T] %z = scale(%t) {factor = 4.0} return %z }"});
  EXPECT_THAT(text, HasSubstr("input %"));
}

TEST(Chain, TypesOfOneNameMustAgree) {
  const std::string message = chained({kBody, R"(graph @head { input %hidden: f32[T, 8]
    %y: f32[T, 8] = scale(%hidden) {factor = 2.0} return %y })"});
  EXPECT_THAT(message, AllOf(HasSubstr("%hidden"), HasSubstr("f32[T, 4]"), HasSubstr("f32[T, 8]"), HasSubstr("head")));
  const std::string weights = chained({"graph @p { weight %w: f32[4] %y = scale(%w) {factor = 2.0} return %y }",
                                       "graph @q { weight %w: f32[8] %z = scale(%w) {factor = 2.0} return %z }"});
  EXPECT_THAT(weights, AllOf(HasSubstr("%w"), HasSubstr("f32[4]"), HasSubstr("f32[8]")));
}

TEST(Chain, MutationStaysInPlace) {
  const std::string text = chained({R"(graph @p { input %k: f32[T, 8] input %slots: i32[T]
      state %kc: f32[P, 4, 1, 8] state %vc: f32[P, 4, 1, 8]
      kv_store(%k, %k, %slots, mut %kc, mut %vc)
      %y: f32[T, 8] = scale(%k) {factor = 2.0} return %y })",
                                    R"(graph @q { input %y: f32[T, 8] input %slots: i32[T]
      state %kc: f32[P, 4, 1, 8] state %vc: f32[P, 4, 1, 8]
      kv_store(%y, %y, %slots, mut %kc, mut %vc)
      %z: f32[T, 8] = scale(%y) {factor = 2.0} return %z })"});
  EXPECT_THAT(text, AllOf(HasSubstr("kv_store(%k, %k, %slots, mut %kc, mut %vc)"),
                          HasSubstr("kv_store(%y, %y, %slots, mut %kc, mut %vc)"),
                          HasSubstr("state %kc: f32[P, 4, 1, 8]\n  state %vc: f32[P, 4, 1, 8]\n  kv_store(%k")))
      << text;
}

}  // namespace
}  // namespace tessera
