// Tests end_with_wanted_rows(). It moves nodes after the last attention from the body, which computes a row for each
// token, to the head, which computes only the rows whose logits are wanted. Catches: a last attention that computes
// unwanted rows, or that leaves out rows that another node reads; a moved node that reads other rows or a state; a
// value that the body passes to the head although the head cannot gather its rows; moved nodes that still compute a row
// for each token; and a model that silently computes its last layer for every token.
#include "tessera/runner/wanted_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/ir/text.h"
#include "tessera/ir/verify.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHead = R"(graph @head {
  input %hidden: f32[T, 8]
  input %wanted_rows: i32[R]
  weight %lm: f32[16, 8]
  %wanted: f32[R, 8] = gather_rows(%hidden, %wanted_rows)
  %logits: f32[R, 16] = linear(%wanted, %lm) {bias = false}
  return %logits
})";

// Returns a body graph. `end` is its text after the attention.
std::string body_with(const std::string& end) {
  return R"(graph @body {
  group "full" paged layers [0]
  input %input_ids: i32[T]
  input %positions: i32[T]
  input %slots.full: i32[T]
  input %slots.window: i32[T]
  state %k: f32[P, 16, 2, 4]
  state %v: f32[P, 16, 2, 4]
  weight %table: f32[16, 8]
  weight %w: f32[8, 8]
  weight %router: f32[4, 8]
  weight %norm: f32[8]
  %e: f32[T, 8] = embedding(%input_ids, %table)
  %q: f32[T, 8] = linear(%e, %w) {bias = false}
  %a: f32[T, 8] = empty_like(%q)
  attention(%q, %k, %v, mut %a) {group = 0, scale = 0.5, window = 0}
)" + end +
         "  return %hidden\n}\n";
}

std::optional<PrefillGraphs> graphs_of_text(const std::string& text) {
  const Result<ir::Graph> body = ir::parse_graph(text, &built_in_ops());
  const Result<ir::Graph> head = ir::parse_graph(kHead, &built_in_ops());
  EXPECT_TRUE(body.ok()) << body.status().to_string();
  EXPECT_TRUE(head.ok()) << head.status().to_string();
  if (!body.ok() || !head.ok()) return std::nullopt;
  Result<std::optional<PrefillGraphs>> made = end_with_wanted_rows(*body, *head, built_in_ops(), cpu_kernels());
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  if (!made.ok() || !*made) return std::nullopt;
  for (const ir::Graph* graph : {&(*made)->body, &(*made)->head}) {
    const Status verified = ir::verify(*graph, built_in_ops());
    EXPECT_TRUE(verified.ok()) << verified.to_string();
  }
  return std::move(**made);
}

std::optional<PrefillGraphs> graphs_of(const std::string& end) { return graphs_of_text(body_with(end)); }

TEST(WantedRows, MoveNodesBehindTheLastAttentionToTheHead) {
  const auto made = graphs_of(R"(  %o: f32[T, 8] = linear(%a, %w) {bias = false}
  %hidden: f32[T, 8], %sum: f32[T, 8] = add_rms_norm(%o, %e, %norm) {eps = 1e-06}
)");
  ASSERT_TRUE(made);
  const std::string body = ir::to_text(made->body);
  EXPECT_THAT(body, HasSubstr("return %e, %a"));
  EXPECT_THAT(body, Not(HasSubstr("add_rms_norm")));
  const std::string head = ir::to_text(made->head);
  EXPECT_THAT(head, HasSubstr("input %e: f32[T, 8]"));
  EXPECT_THAT(head, HasSubstr("input %a: f32[T, 8]"));
  EXPECT_THAT(head, HasSubstr("%o: f32[R, 8] = linear("));
  EXPECT_THAT(head, HasSubstr("%hidden: f32[R, 8], %sum: f32[R, 8] = add_rms_norm(%o, "));
  EXPECT_THAT(head, HasSubstr("%logits: f32[R, 16] = linear(%hidden, %lm)"));
  EXPECT_THAT(head, HasSubstr("return %hidden, %logits"));
}

std::ptrdiff_t count_told(const ir::Graph& graph) {
  return std::ranges::count_if(graph.nodes, [](const ir::Node& n) { return n.attribute_or(kWantedRowsOnly, false); });
}

// Only the last attention may skip rows that are not wanted, because the next layer reads all rows of an earlier
// attention.
TEST(WantedRows, AreAllThatTheLastAttentionComputes) {
  const auto made = graphs_of(R"(  %b: f32[T, 8] = empty_like(%a)
  attention(%a, %k, %v, mut %b) {group = 0, scale = 0.5, window = 0}
  %hidden: f32[T, 8] = linear(%b, %w) {bias = false}
)");
  ASSERT_TRUE(made);
  EXPECT_EQ(count_told(made->body), 1);
  EXPECT_EQ(count_told(made->head), 0);
  EXPECT_EQ(made->body.nodes.back().op, "attention");
  EXPECT_TRUE(made->body.nodes.back().attribute_or(kWantedRowsOnly, false));
}

// The new body ends with kv_store, which reads all rows of the attention's result. The attention must therefore compute
// all rows.
TEST(WantedRows, DoNotLimitAnAttentionThatTheBodyReads) {
  const auto made = graphs_of(R"(  kv_store(%a, %a, %slots.full, mut %k, mut %v)
  %hidden: f32[T, 8] = linear(%a, %w) {bias = false}
)");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->body.nodes.back().op, "kv_store");
  EXPECT_EQ(count_told(made->body), 0);
}

TEST(WantedRows, HaveTheirOwnShapes) {
  const auto made = graphs_of(R"(  %r: f32[T, 2, 4] = reshape(%a) {shape = "T, 2, 4"}
  %flat: f32[T, 8] = reshape(%r) {shape = "T, 8"}
  %hidden: f32[T, 8] = linear(%flat, %w) {bias = false}
)");
  ASSERT_TRUE(made);
  EXPECT_THAT(ir::to_text(made->head), HasSubstr("%r: f32[R, 2, 4] = reshape("));
}

// In the body, a router finds the padding rows through `slots`. In the head, it finds them through the row marks.
TEST(WantedRows, TellPaddingByTheirMarks) {
  const auto made = graphs_of(R"(  %scores: f32[T, 4] = linear(%a, %router) {bias = false}
  %ids: i32[T, 2], %shares: f32[T, 2] = moe_route(%scores, %slots.full) {top_k = 2}
  %hidden: f32[T, 8] = linear(%a, %w) {bias = false}
)");
  ASSERT_TRUE(made);
  const std::string head = ir::to_text(made->head);
  EXPECT_THAT(head, HasSubstr("input %row_marks: i32[R]"));
  EXPECT_THAT(head, HasSubstr(", %row_marks)"));
  EXPECT_THAT(head, Not(HasSubstr("slots")));
}

TEST(WantedRows, UseTheSameMarksForAllCacheGroups) {
  const auto made = graphs_of(R"(  %scores: f32[T, 4] = linear(%a, %router) {bias = false}
  %ids: i32[T, 2], %shares: f32[T, 2] = moe_route(%scores, %slots.full) {top_k = 2}
  %others: i32[T, 2], %parts: f32[T, 2] = moe_route(%scores, %slots.window) {top_k = 2}
  %hidden: f32[T, 8] = linear(%a, %w) {bias = false}
)");
  ASSERT_TRUE(made);
  EXPECT_THAT(ir::to_text(made->head), HasSubstr("%others: i32[R, 2], %parts: f32[R, 2] = moe_route("));
}

// Graphs that run after the head find its results by name. A value that moves to the head must therefore not take the
// name of such a result.
TEST(WantedRows, LeaveTheHeadItsOwnNames) {
  const auto made = graphs_of(R"(  %logits: f32[T, 8] = linear(%a, %w) {bias = false}
  %hidden: f32[T, 8] = linear(%logits, %w) {bias = false}
)");
  ASSERT_TRUE(made);
  EXPECT_THAT(ir::to_text(made->head), HasSubstr("%logits: f32[R, 16] = linear(%hidden, %lm)"));
}

TEST(WantedRows, KeepNodesThatCannotBeGathered) {
  // No node of these two bodies can move to the head. In the first body, the last node reads an input with one row per
  // token. In the second body, a node overwrites a value that the body made before.
  EXPECT_FALSE(graphs_of("  %hidden: f32[T, 8] = embedding(%input_ids, %table)\n"));
  EXPECT_FALSE(graphs_of("  all_reduce(mut %e)\n  %hidden: f32[T, 8] = linear(%e, %w) {bias = false}\n"));
  // In this body, a later node reads a view, which shares another value's memory.
  std::string viewed =
      body_with("  %s: f32[T, 2, 4] = add(%v3, %v3)\n  %hidden: f32[T, 8] = reshape(%s) {shape = \"T, 8\"}\n");
  viewed.insert(viewed.find("  attention("), "  %v3: f32[T, 2, 4] = reshape(%e) {shape = \"T, 2, 4\"}\n");
  EXPECT_FALSE(graphs_of_text(viewed));
  // In this body, no node follows the attention.
  std::string ends = body_with("");
  ends.replace(ends.find("return %hidden"), 14, "return %a");
  EXPECT_FALSE(graphs_of_text(ends));
}

}  // namespace
}  // namespace tessera
