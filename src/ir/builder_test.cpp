// Catches: a node that disagrees with its declaration but is accepted; a first error that later errors replace; a model
// that crashes after an error instead of reporting it; and two values with the same name.
#include "tessera/ir/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ir/graph_test_util.h"
#include "tessera/ir/verify.h"

namespace tessera::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Type kHidden{DType::kBFloat16, {Symbol::kTokens, 64}};

// Returns the error for a graph to which `add` adds one fault. `add` gets the value %x, a hidden state.
template <class Add>
std::string error_of(Add add) {
  const OpTable ops = test_op_table();
  GraphBuilder b("g", ops);
  const ValueId x = b.input("x", kHidden);
  b.op("add", {x, x});
  add(b, x);
  const Result<Graph> graph = b.finish();
  return graph.ok() ? "no error" : graph.status().message();
}

TEST(GraphBuilder, BuildsAForward) {
  const OpTable ops = test_op_table();
  GraphBuilder b("g", ops);
  const ValueId ids = b.input("ids", {DType::kInt32, {Symbol::kTokens}});
  const ValueId table = b.weight("table", {DType::kBFloat16, {128, 64}});
  const ValueId h = b.op("embedding", {ids, table});
  EXPECT_EQ(b.type(h), kHidden);
  const ValueId logits = b.op("linear", {h, b.weight("table", {DType::kBFloat16, {128, 64}})});
  const std::vector<ValueId> norm = b.multi_op("add_rms_norm", {h, h, h}, {{"eps", 1e-5}});
  const ValueId out = b.op("empty_like", {h});
  EXPECT_EQ(b.op("store", {h, out}), ValueId{-1});
  b.output(logits);
  b.output(norm[1]);

  const Result<Graph> graph = b.finish();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_TRUE(verify(*graph, ops).ok()) << verify(*graph, ops).message();
  EXPECT_EQ(graph->weights.size(), 1u);
  EXPECT_EQ(graph->nodes.size(), 5u);
  EXPECT_EQ(graph->value(norm[1]).producer, NodeId{2});
  EXPECT_THAT(graph->nodes[4].mutates, ElementsAre(false, true));
  EXPECT_THAT(graph->outputs, ElementsAre(logits, norm[1]));
}

TEST(GraphBuilder, ResultsAreNamedByScopeAndNumber) {
  const OpTable ops = test_op_table();
  GraphBuilder b("g", ops);
  const ValueId x = b.input("layers.0.add", kHidden);
  b.op("add", {x, x});
  b.scope("layers.0");
  b.op("add", {x, x});
  b.multi_op("add_rms_norm", {x, x, x}, {{"eps", 1e-5}});
  b.scope("");
  b.op("add", {x, x});
  const Result<Graph> graph = b.finish();
  ASSERT_TRUE(graph.ok());
  std::vector<std::string> names;
  for (const Value& value : graph->values) names.push_back(value.name);
  EXPECT_THAT(names, ElementsAre("layers.0.add", "add", "layers.0.add.1", "layers.0.add_rms_norm",
                                 "layers.0.add_rms_norm.1", "add.1"));
}

TEST(GraphBuilder, AttributesAreSortedByName) {
  const OpTable ops = test_op_table();
  GraphBuilder b("g", ops);
  b.op("mark", {b.input("x", kHidden)}, {{"number", 3}, {"flag", true}, {"label", "a"}});
  const Result<Graph> graph = b.finish();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const Node& node = graph->nodes[0];
  ASSERT_EQ(node.attributes.size(), 3u);
  EXPECT_EQ(node.attributes[0].first, "flag");
  EXPECT_EQ(node.attributes[2].first, "number");
  EXPECT_EQ(node.attribute_or("number", std::int64_t{0}), 3);
  EXPECT_TRUE(node.attribute_or("flag", false));
  EXPECT_EQ(node.attribute_or("factor", 0.5), 0.5);
}

TEST(GraphBuilder, ErrorsNameGraphNodeAndOperator) {
  EXPECT_EQ(error_of([](GraphBuilder& b, ValueId x) {
              b.op("ad", {x, x});
            }),
            "graph 'g': node 1 (ad): no operator is named 'ad'; near: add, add_rms_norm");
}

TEST(GraphBuilder, RefusesWhatTheDeclarationDoesNotAllow) {
  const ValueId nowhere{99};
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) { b.op("add", {x}); }),
              HasSubstr("1 operands; declared: (x, y)"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("linear", {x, x, x, x});
              }),
              HasSubstr("4 operands; declared: (x, weight, bias?)"));
  EXPECT_THAT(error_of([&](GraphBuilder& b, ValueId x) {
                b.op("add", {x, nowhere});
              }),
              HasSubstr("operand 'y' is value 99, which does not exist"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("add", {x, b.op("store", {x, b.op("empty_like", {x})})});
              }),
              HasSubstr("operand 'y' is value -1"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("mark", {x}, {{"colour", 1}});
              }),
              HasSubstr("attribute 'colour' is unknown; declared: flag, number"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("add", {x, x}, {{"eps", 1.0}});
              }),
              HasSubstr("attribute 'eps' is unknown: the operator has none"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("mark", {x}, {{"number", 1.0}});
              }),
              HasSubstr("attribute 'number' is of kind double; declared: integer"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("mark", {x}, {{"number", 1}, {"number", 2}});
              }),
              HasSubstr("attribute 'number' is given twice"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.multi_op("add_rms_norm", {x, x, x});
              }),
              HasSubstr("attribute 'eps' is required and absent"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("linear", {x, b.weight("w", {DType::kBFloat16, {8, 8}})});
              }),
              HasSubstr("columns must agree"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("store", {x, x});
              }),
              HasSubstr("operand 'y' is mutated and %x is of kind input"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("store", {x, b.weight("w", kHidden)});
              }),
              HasSubstr("%w is of kind weight"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId x) {
                b.op("add_rms_norm", {x, x, x}, {{"eps", 1e-6}});
              }),
              HasSubstr("has 2 results: it is built with multi_op()"));
  EXPECT_THAT(error_of([&](GraphBuilder& b, ValueId) { b.output(nowhere); }), HasSubstr("output 0 is value 99"));
}

TEST(GraphBuilder, NamesAreDeclaredOnce) {
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId) { b.input("x", kHidden); }),
              HasSubstr("input 'x': the name is taken by a value of kind input"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId) { b.weight("x", kHidden); }),
              HasSubstr("weight 'x': the name is taken"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId) { b.state("add", kHidden); }),
              HasSubstr("state 'add': the name is taken by a value of kind result"));
  EXPECT_THAT(error_of([](GraphBuilder& b, ValueId) {
                b.weight("w", kHidden);
                b.weight("w", {DType::kFloat32, {64}});
              }),
              HasSubstr("weight 'w' is declared as bf16[T, 64] and again as f32[64]"));
}

// After an error, a model continues with the ids {-1} that the builder returns.
TEST(GraphBuilder, TheFirstErrorStaysAndLaterCallsDoNothing) {
  EXPECT_EQ(error_of([](GraphBuilder& b, ValueId x) {
              b.fail(invalid_argument("the first"));
              b.fail(invalid_argument("the second"));
              const std::vector<ValueId> both = b.multi_op("no_such", {x});
              EXPECT_EQ(both[1], ValueId{-1});
              const ValueId next = b.op("add", {both[0], both[kMaxResults - 1]});
              EXPECT_EQ(b.type(next), Type{});
              EXPECT_EQ(b.weight("w", kHidden), ValueId{-1});
              EXPECT_EQ(b.graph().nodes.size(), 1u);
              b.output(next);
            }),
            "graph 'g': the first");
}

TEST(GraphBuilder, IsEmptyAfterFinish) {
  const OpTable ops = test_op_table();
  GraphBuilder b("g", ops);
  b.scope("s");
  b.input("x", kHidden);
  b.fail(invalid_argument("once"));
  EXPECT_FALSE(b.finish().ok());
  b.op("add", {b.input("x", kHidden), ValueId{0}});
  const Result<Graph> graph = b.finish();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(graph->values[1].name, "add");
}

TEST(Graph, TypeOfAnAbsentValueIsAnError) {
  const OpTable ops = test_op_table();
  GraphBuilder b("g", ops);
  b.input("x", kHidden);
  const Graph graph = *b.finish();
  EXPECT_EQ(*graph.type_of("x"), kHidden);
  const Result<Type> absent = graph.type_of("y");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.status().code(), StatusCode::kInternal);
  EXPECT_THAT(absent.status().message(), HasSubstr("graph g has no value \"y\""));
}

TEST(OpTable, FindsEveryDeclarationAndNoOther) {
  const OpTable ops = test_op_table();
  for (const OpDecl* decl : ops.all()) EXPECT_EQ(ops.find(decl->name), decl);
  EXPECT_EQ(ops.find("ad"), nullptr);
  EXPECT_EQ(ops.find("zzz"), nullptr);
  EXPECT_EQ(ops.get("convolution_2d").status().message(), "no operator is named 'convolution_2d'");
  EXPECT_EQ(ops.get("atention").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera::ir
