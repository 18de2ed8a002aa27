// Catches: graphs that are accepted although they break a rule. A faulty pass would then stay unnoticed. Each test
// breaks one rule of a valid graph.
#include "tessera/ir/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ir/graph_test_util.h"
#include "tessera/ir/text.h"

namespace tessera::ir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ValueId id_of(const Graph& graph, std::string_view name) {
  const Value* value = graph.find_value(name);
  EXPECT_NE(value, nullptr) << name;
  return ValueId{static_cast<std::int32_t>(value - graph.values.data())};
}

// Returns the verifier's message for the graph of kLlamaText, modified by `change`.
template <class Change>
std::string broken(Change change) {
  const OpTable ops = test_op_table();
  Result<Graph> graph = parse_graph(kLlamaText, &ops);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_TRUE(verify(*graph, ops).ok()) << verify(*graph, ops).message();
  change(*graph);
  const Status status = verify(*graph, ops);
  return status.ok() ? "no error" : status.message();
}

// Returns the verifier's message for a graph with these statements. The parser must accept the statements. It already
// checks that each node agrees with the declaration of its operator.
std::string broken_text(std::string_view statements, const OpTable& ops = test_op_table()) {
  const std::string text =
      "graph @g { input %x: f32[T, 8] weight %w: f32[T, 8] state %s: f32[T, 8] " + std::string(statements) + " }";
  const Result<Graph> graph = parse_graph(text, &ops);
  if (!graph.ok()) return graph.status().message();
  const Status status = verify(*graph, ops);
  return status.ok() ? "no error" : status.message();
}

TEST(Verify, NamesAreUniqueAndNotEmpty) {
  EXPECT_EQ(broken([](Graph& g) { g.values[3].name = "q"; }), "graph 'llama': value 8: the name %q is taken");
  EXPECT_EQ(broken([](Graph& g) { g.values[3].name = ""; }), "graph 'llama': value 3 has no name");
}

TEST(Verify, DimensionsCanBeEvaluated) {
  EXPECT_THAT(broken([](Graph& g) { g.values[0].type.shape[0] = -1; }),
              HasSubstr("%input_ids: -1 is no dimension, in type i32[-1]"));
  EXPECT_THAT(broken([](Graph& g) { g.values[0].type.shape[0] = Dim(Symbol::kTokens) * (std::int64_t{1} << 62) * 8; }),
              HasSubstr("%input_ids: unrepresentable is no dimension"));
}

TEST(Verify, DeclaredValuesAreListedOnceInTheirList) {
  EXPECT_THAT(broken([](Graph& g) { g.inputs.pop_back(); }),
              HasSubstr("%out_rows is of kind input and not in the list of inputs"));
  EXPECT_THAT(broken([](Graph& g) { g.weights.push_back(g.weights[0]); }),
              HasSubstr("%model.embed_tokens.weight is twice in the list of weights"));
  EXPECT_THAT(broken([](Graph& g) { g.states.push_back(g.weights[0]); }),
              HasSubstr("is of kind weight and in the list of states"));
  EXPECT_THAT(broken([](Graph& g) { g.inputs[0] = ValueId{500}; }),
              HasSubstr("the list of inputs names value 500, which does not exist"));
}

TEST(Verify, ResultsAreMadeOnceByTheirProducer) {
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].results.push_back(ValueId{-7}); }),
              HasSubstr("node 1 (linear): result -7 does not exist"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].results[0] = g.inputs[0]; }),
              HasSubstr("node 1 (linear): its result %input_ids is of kind input"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[6].results[1] = g.nodes[6].results[0]; }),
              HasSubstr("node 6 (add_rms_norm): its result %normed is made twice"));
  EXPECT_THAT(broken([](Graph& g) { g.value(g.nodes[1].results[0]).producer = NodeId{2}; }),
              HasSubstr("node 1 (linear): its result %q names node 2 as its producer"));
  EXPECT_THAT(broken([](Graph& g) { g.values.push_back({.name = "lost"}); }),
              HasSubstr("%lost is a result that no node makes"));
  EXPECT_THAT(broken([](Graph& g) { g.value(g.inputs[0]).producer = NodeId{0}; }),
              HasSubstr("%input_ids is of kind input and names node 0 as its producer"));
}

TEST(Verify, OperatorsAreDeclared) {
  EXPECT_EQ(broken([](Graph& g) { g.nodes[1].op = "liner"; }),
            "graph 'llama': node 1 (liner): no operator is named 'liner'; near: linear");
}

TEST(Verify, ValuesAreDefinedBeforeUse) {
  EXPECT_EQ(broken([](Graph& g) { g.nodes[1].operands[0] = id_of(g, "sum"); }),
            "graph 'llama': node 1 (linear): its operand %sum is made later, by node 6");
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].operands[0] = id_of(g, "q"); }),
              HasSubstr("its operand %q is made later, by node 1"));
}

TEST(Verify, NodesAgreeWithTheirDeclaration) {
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].operands[0] = ValueId{77}; }),
              HasSubstr("node 1 (linear): operand 'x' is value 77, which does not exist"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].operands.pop_back(); }), HasSubstr("node 1 (linear): 1 operands"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].mutates.clear(); }), HasSubstr("0 mutation flags for 2 operands"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[5].mutates[3] = false; }),
              HasSubstr("operand 'out' (%attn) is only read here and mutated in the declaration"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[5].mutates[0] = true; }),
              HasSubstr("operand 'q' (%q) is mutated here and only read"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[6].attributes.clear(); }),
              HasSubstr("attribute 'eps' is required and absent"));
  EXPECT_THAT(broken([](Graph& g) { std::swap(g.nodes[7].attributes[0], g.nodes[7].attributes[1]); }),
              HasSubstr("attributes 'flag' and 'factor' are not sorted by name"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].operands[1] = id_of(g, "k_cache.0"); }),
              HasSubstr("columns must agree"));
}

TEST(Verify, ResultTypesAreTheInferredOnes) {
  EXPECT_THAT(broken([](Graph& g) {
                g.values[static_cast<std::size_t>(id_of(g, "marked").value())].type.dtype = DType::kFloat16;
              }),
              HasSubstr("node 7 (mark): its result %marked is f16[T, 64] instead of bf16[T, 64]"));
  EXPECT_THAT(broken([](Graph& g) {
                g.values.push_back({.name = "extra", .type = {}, .kind = ValueKind::kResult, .producer = NodeId{7}});
                g.nodes[7].results.push_back(id_of(g, "extra"));
              }),
              HasSubstr("node 7 (mark): it has 2 results instead of 1"));
}

TEST(Verify, InputsAndWeightsAreNeverWritten) {
  EXPECT_THAT(broken([](Graph& g) { g.nodes[3].operands[1] = id_of(g, "input_ids"); }),
              HasSubstr("node 3 (store): operand 'y' is mutated and %input_ids is of kind input"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[3].operands[1] = id_of(g, "q.weight"); }),
              HasSubstr("%q.weight is of kind weight"));
  EXPECT_THAT(broken_text("%v = split_columns(%w) {by = 2} store(%x, mut %v) return"),
              HasSubstr("node 1 (store): it writes %v, a view of the weight %w"));
  EXPECT_THAT(broken_text("%v = split_columns(%x) %u = split_columns(%v) store(%w, mut %u) return"),
              HasSubstr("it writes %u, a view of the input %x"));
  EXPECT_EQ(broken_text("%v = split_columns(%s) store(%x, mut %v) return"), "no error");
}

TEST(Verify, WrittenMemoryIsNoOtherOperand) {
  EXPECT_THAT(broken_text("store(%s, mut %s) return"),
              HasSubstr("node 0 (store): it writes %s, whose memory is also its operand 0, %s"));
  EXPECT_THAT(broken_text("%v = split_columns(%s) store(%v, mut %s) return"),
              HasSubstr("it writes %s, whose memory is also its operand 0, %v"));
}

TEST(Verify, ViewsKeepTypeAndCount) {
  static const OpDecl kCount{.name = "count",
                             .summary = "breaks a rule",
                             .operands = {{"x"}},
                             .infer = [](const OpSignature& s) -> Result<std::vector<Type>> {
                               return std::vector<Type>{{s.operands[0].dtype, {s.operands[0].shape[0]}}};
                             },
                             .execution = Execution::kView};
  static const OpDecl kBits{.name = "bits",
                            .summary = "breaks a rule",
                            .operands = {{"x"}},
                            .infer = [](const OpSignature& s) -> Result<std::vector<Type>> {
                              return std::vector<Type>{{DType::kInt32, s.operands[0].shape}};
                            },
                            .execution = Execution::kView};
  static const OpDecl kTwo{.name = "two",
                           .summary = "breaks a rule",
                           .operands = {{"x"}},
                           .infer = test_ops::like_first_twice,
                           .execution = Execution::kView};
  static const OpDecl kWriting{.name = "writing",
                               .summary = "breaks a rule",
                               .operands = {{.name = "x", .mutated = true}},
                               .infer = test_ops::like_first,
                               .execution = Execution::kView};
  const OpTable ops({&kCount, &kBits, &kTwo, &kWriting});
  EXPECT_THAT(broken_text("%v = count(%x) return", ops),
              HasSubstr("node 0 (count): %v is f32[T], no view of %x, which is f32[T, 8]"));
  EXPECT_THAT(broken_text("%v = bits(%x) return", ops), HasSubstr("%v is i32[T, 8], no view of %x"));
  EXPECT_THAT(broken_text("%v, %u = two(%x) return", ops), HasSubstr("a view has one result"));
  EXPECT_THAT(broken_text("%v = writing(mut %s) return", ops), HasSubstr("and writes nothing"));
}

TEST(Verify, AllocatedMemoryIsWrittenBeforeItIsRead) {
  EXPECT_THAT(broken_text("%a = empty_like(%x) %y = add(%x, %a) return %y"),
              HasSubstr("node 1 (add): it reads %a, whose memory nothing has written yet"));
  EXPECT_THAT(broken_text("%a = empty_like(%x) %v = split_columns(%a) %y = add(%v, %v) return %y"),
              HasSubstr("node 2 (add): it reads %v, whose memory"));
  EXPECT_THAT(broken_text("%a = empty_like(%x) return %a"),
              HasSubstr("output 0, %a, is memory that nothing has written"));
  EXPECT_EQ(broken_text("%a = empty_like(%x) %b = empty_like(%a) store(%x, mut %b) return %b"), "no error");
  EXPECT_EQ(broken_text("%a = empty_like(%x) %v = split_columns(%a) store(%x, mut %v) return %a"), "no error");
}

TEST(Verify, AnOperatorThatRunsNothingCannotSplit) {
  static const OpDecl kIdle{.name = "idle",
                            .summary = "breaks a rule",
                            .operands = {{"x"}},
                            .infer = test_ops::like_first,
                            .split_by_default = true,
                            .execution = Execution::kView};
  const OpTable ops({&kIdle});
  EXPECT_THAT(broken_text("%y = idle(%x) return", ops), HasSubstr("the operator is split by default and runs nothing"));
}

TEST(Verify, OutputsExistAndAreNoWeights) {
  EXPECT_THAT(broken([](Graph& g) { g.outputs[1] = ValueId{400}; }),
              HasSubstr("output 1 is value 400, which does not exist"));
  EXPECT_THAT(broken([](Graph& g) { g.outputs[1] = g.weights[1]; }),
              HasSubstr("output 1, %model.norm.weight, is the weight %model.norm.weight"));
  EXPECT_THAT(broken_text("%v = split_columns(%w) return %v"), HasSubstr("output 0, %v, is the weight %w"));
}

TEST(Verify, CacheGroupsAreDistinctAndComplete) {
  EXPECT_THAT(broken([](Graph& g) { g.cache_groups[1].name = "full"; }),
              HasSubstr("two cache groups are named \"full\""));
  EXPECT_THAT(broken([](Graph& g) { g.cache_groups[0].window = 5; }),
              HasSubstr("cache group \"full\" of kind paged has a window of 5"));
  EXPECT_THAT(broken([](Graph& g) { g.cache_groups[1].window = 0; }),
              HasSubstr("cache group \"window.8\" of kind window has a window of 0"));
  EXPECT_THAT(broken([](Graph& g) { g.cache_groups[0].window = -5; }), HasSubstr("window of -5"));
  EXPECT_THAT(broken([](Graph& g) { g.cache_groups[1].layers[0] = 2; }),
              HasSubstr("cache group \"window.8\": layer 2 is in a group already"));
  EXPECT_THAT(broken([](Graph& g) { g.cache_groups[1].layers[0] = -1; }), HasSubstr("layer -1 is negative"));
}

TEST(Verify, AStateHasThePagesOfOneCacheGroup) {
  const auto with_shape = [](Shape shape) {
    return broken([&](Graph& g) { g.value(g.states[1]).type.shape = shape; });
  };
  EXPECT_THAT(with_shape({page_symbol(2), 16, 2, 16}), HasSubstr("of cache group 2; the graph has 2"));
  EXPECT_THAT(with_shape({Dim(Symbol::kPages) * 2, 16, 2, 16}), HasSubstr("accepted as its first dimension"));
  EXPECT_THAT(with_shape({16, Symbol::kPages, 2, 16}), HasSubstr("accepted as its first dimension"));
  EXPECT_THAT(with_shape({page_symbol(0), page_symbol(1)}), HasSubstr("accepted as its first dimension"));
  EXPECT_THAT(with_shape({page_symbol(1), 16, 2, 16}),
              HasSubstr("its attribute 'group' is 0, and %v_cache.0 is of cache group 1"));
}

TEST(Verify, MoreCacheGroupsThanSymbolsAreRefused) {
  const auto add_three = [](Graph& g) {
    for (const char* more : {"a", "b", "c"}) g.cache_groups.push_back({.name = more});
  };
  EXPECT_THAT(broken(add_three), HasSubstr("5 cache groups; at most 4 are accepted"));
}

TEST(Verify, TheGroupAttributeIndexesACacheGroup) {
  EXPECT_THAT(broken([](Graph& g) { g.nodes[5].attributes[0].second = std::int64_t{2}; }),
              HasSubstr("node 5 (attention): its attribute 'group' is 2; the graph has 2 cache groups"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[5].attributes[0].second = std::int64_t{-1}; }),
              HasSubstr("its attribute 'group' is -1"));
}

TEST(Verify, TheErrorIsInternal) {
  const OpTable ops = test_op_table();
  Graph graph;
  graph.name = "g";
  EXPECT_TRUE(verify(graph, ops).ok());
  graph.outputs.push_back(ValueId{0});
  EXPECT_EQ(verify(graph, ops).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace tessera::ir
