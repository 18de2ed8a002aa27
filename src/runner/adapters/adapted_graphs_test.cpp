// AdapterLayout lists the linear operators that low-rank adapters (LoRA) may change, and adapt_graphs() adds operators
// around them. Catches: added operators that are in the wrong place in a graph, or that are missing for a listed
// linear; values of the model that get another name; and a listed linear that no graph contains, if this is not
// reported as an error.
#include "tessera/runner/adapters/adapted_graphs.h"

#include <gmock/gmock.h>

#include "tessera/ir/text.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kBody = R"(graph @body {
  input %input_ids: i32[T]
  weight %table: f32[10, 8]
  weight %qkv.weight: f32[6, 8]
  weight %o.weight: f32[8, 6]
  %h: f32[T, 8] = embedding(%input_ids, %table)
  %y: f32[T, 6] = linear(%h, %qkv.weight)
  %z: f32[T, 8] = linear(%y, %o.weight, %h) {residual = true}
  return %z
})";

AdaptableLinear qkv() {
  return {.weight = "qkv.weight",
          .cols = 8,
          .modules = {{"model.layers.0.q", 4, 8}, {"model.layers.0.k", 2, 8}},
          .ranges = {{0, 0, 4}, {1, 0, 2}}};
}

AdapterLayout layout_of(std::vector<AdaptableLinear> linears) {
  return *AdapterLayout::create({std::move(linears)}, 0, {.slots = 3, .max_rank = 4}, ir::DType::kFloat32);
}

ModelGraphs graphs() {
  ModelGraphs made;
  made.body = *ir::parse_graph(kBody, &built_in_ops());
  return made;
}

TEST(AdaptedGraphs, AddOperatorsAroundLinearsOfTheLayout) {
  const Result<AdaptedGraphs> adapted = adapt_graphs(graphs(), layout_of({qkv()}), built_in_ops());
  ASSERT_TRUE(adapted.ok()) << adapted.status().message();
  const std::string text = ir::to_text(adapted->body);
  EXPECT_THAT(
      text,
      HasSubstr(
          R"(  %qkv.weight.shrunk: f32[T, 8] = adapter_shrink(%h, %adapters.qkv.weight.a, %adapters.qkv.weight.ranks, %adapter_rows)
  %y: f32[T, 6] = linear(%h, %qkv.weight)
  adapter_add(mut %y, %qkv.weight.shrunk, %adapters.qkv.weight.b, %adapters.qkv.weight.ranks, %adapters.qkv.weight.scales, %adapter_rows) {modules = [0, 1], rows = [4, 2]}
  %z: f32[T, 8] = linear(%y, %o.weight, %h) {residual = true}
  return %z)"));
  EXPECT_THAT(text, HasSubstr("input %adapters.qkv.weight.a: f32[3, 8, 8]"));
  EXPECT_THAT(text, HasSubstr("input %adapters.qkv.weight.b: f32[3, 4, 6]"));
  EXPECT_THAT(text, HasSubstr("input %adapters.qkv.weight.ranks: i32[3, 2]"));
  EXPECT_THAT(text, HasSubstr("input %adapter_rows: i32[5, T]"));
  EXPECT_FALSE(adapted->prefill);
}

TEST(AdaptedGraphs, AddOperatorsBehindTheEmbedding) {
  const AdaptableLinear embedding{.weight = "table",
                                  .embeds = true,
                                  .cols = 10,
                                  .first_col = 20,
                                  .modules = {{"model.embed_tokens", 8, 10}},
                                  .ranges = {{0, 0, 8}}};
  AdapterLayout layout = *AdapterLayout::create(
      {{embedding}}, 0, {.slots = 3, .max_rank = 4, .targets = {"embed_tokens"}}, ir::DType::kFloat32);
  const Result<AdaptedGraphs> adapted = adapt_graphs(graphs(), std::move(layout), built_in_ops());
  ASSERT_TRUE(adapted.ok()) << adapted.status().message();
  const std::string text = ir::to_text(adapted->body);
  EXPECT_THAT(text, HasSubstr(R"(  %h: f32[T, 8] = embedding(%input_ids, %table)
  %table.looked_up: f32[T, 4] = adapter_lookup(%input_ids, %adapters.table.embedding.a, %adapters.table.embedding.ranks, %adapter_rows) {first_row = 20}
  adapter_add(mut %h, %table.looked_up, %adapters.table.embedding.b, )"));
}

TEST(AdaptedGraphs, ReplaceRowsByWholeMatricesLast) {
  ModelGraphs made;
  made.body = *ir::parse_graph(R"(graph @body {
  input %input_ids: i32[T]
  input %image_rows: i32[T]
  weight %table: f32[10, 8]
  input %images: f32[3, 8]
  %h: f32[T, 8] = embedding(%input_ids, %table, %image_rows, %images)
  %y: f32[T, 10] = linear(%h, %table)
  return %y
})",
                               &built_in_ops());
  const AdaptableLinear embedding{.weight = "table",
                                  .embeds = true,
                                  .cols = 10,
                                  .first_col = 20,
                                  .modules = {{"model.embed_tokens", 8, 30}},
                                  .ranges = {{0, 0, 8}}};
  const AdaptableLinear head{.weight = "table", .cols = 8, .modules = {{"lm_head", 30, 8}}, .ranges = {{0, 20, 10}}};
  AdapterLayout layout = *AdapterLayout::create(
      {{embedding, head}}, 0, {.slots = 3, .max_rank = 4, .targets = {"lm_head"}, .saved = {"lm_head", "embed_tokens"}},
      ir::DType::kFloat32);
  const Result<AdaptedGraphs> adapted = adapt_graphs(made, std::move(layout), built_in_ops());
  ASSERT_TRUE(adapted.ok()) << adapted.status().message();
  const std::string text = ir::to_text(adapted->body);
  EXPECT_THAT(
      text,
      HasSubstr(
          R"(  adapter_whole_embedding(mut %h, %input_ids, %adapters.table.embedding.whole.a, %adapters.table.embedding.whole.ranks, %adapter_rows, %image_rows) {first_row = 20}
)"));
  EXPECT_THAT(text, HasSubstr(R"(%adapters.table.scales, %adapter_rows) {modules = [0], rows = [10]}
  adapter_whole_linear(mut %y, %h, %adapters.table.whole.a, %adapters.table.whole.ranks, %adapter_rows)
)"));
  EXPECT_THAT(text, HasSubstr("input %adapters.table.embedding.whole.a: f32[3, 10, 8]"));
  EXPECT_THAT(text, HasSubstr("input %adapters.table.whole.a: f32[3, 10, 8]"));
  EXPECT_THAT(text, HasSubstr("input %adapters.table.whole.ranks: i32[3, 1]"));
}

TEST(AdaptedGraphs, RefuseALinearThatNoGraphHas) {
  AdaptableLinear other = qkv();
  other.weight = "fused_away.weight";
  const Result<AdaptedGraphs> adapted = adapt_graphs(graphs(), layout_of({qkv(), other}), built_in_ops());
  EXPECT_EQ(adapted.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(adapted.status().message(), HasSubstr("fused_away.weight"));
}

}  // namespace
}  // namespace tessera
