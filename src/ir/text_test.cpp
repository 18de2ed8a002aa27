// Catches: parts of a graph that are not printed or not read back; a comparison that overlooks a difference; wrong text
// that is accepted; an error that points to the wrong place; and text that crashes the parser.
#include "tessera/ir/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <span>

#include "tessera/ir/graph_test_util.h"
#include "tessera/ir/verify.h"

namespace tessera::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Graph parsed(std::string_view text) {
  Result<Graph> graph = parse_graph(text, nullptr);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *std::move(graph) : Graph{};
}

TEST(GraphText, CanonicalTextPrintsAsItWasRead) {
  const OpTable ops = test_op_table();
  EXPECT_EQ(to_text(parsed(kLlamaText)), kLlamaText);
  const Result<Graph> checked = parse_graph(kLlamaText, &ops);
  ASSERT_TRUE(checked.ok()) << checked.status().message();
  EXPECT_EQ(to_text(*checked), kLlamaText);
  EXPECT_TRUE(verify(*checked, ops).ok()) << verify(*checked, ops).message();
}

TEST(GraphText, EveryPartIsRead) {
  const Graph graph = parsed(kLlamaText);
  EXPECT_EQ(graph.name, "llama");
  ASSERT_EQ(graph.cache_groups.size(), 2u);
  EXPECT_EQ(graph.cache_groups[0], (CacheGroup{.name = "full", .layers = {0, 2}}));
  EXPECT_EQ(graph.cache_groups[1],
            (CacheGroup{.name = "window.8", .kind = CacheGroup::Kind::kWindow, .window = 8, .layers = {1}}));
  ASSERT_EQ(graph.inputs.size(), 2u);
  ASSERT_EQ(graph.weights.size(), 3u);
  ASSERT_EQ(graph.states.size(), 2u);
  EXPECT_EQ(graph.value(graph.inputs[1]).type, (Type{DType::kInt32, {Symbol::kRows}}));
  EXPECT_EQ(graph.value(graph.states[0]).type, (Type{DType::kBFloat16, {Symbol::kPages, 16, 2, 16}}));
  EXPECT_EQ(graph.value(graph.states[0]).kind, ValueKind::kState);

  ASSERT_EQ(graph.nodes.size(), 8u);
  const Node& attention = graph.nodes[5];
  EXPECT_EQ(attention.op, "attention");
  EXPECT_TRUE(attention.results.empty());
  EXPECT_THAT(attention.mutates, ElementsAre(false, false, false, true));
  EXPECT_EQ(graph.value(attention.operands[3]).name, "attn");
  EXPECT_EQ(attention.attribute_or("scale", 0.0), 0.25);
  const Node& norm = graph.nodes[6];
  ASSERT_EQ(norm.results.size(), 2u);
  EXPECT_EQ(graph.value(norm.results[1]).producer, NodeId{6});
  EXPECT_EQ(graph.value(norm.results[1]).kind, ValueKind::kResult);
  const Node& mark = graph.nodes[7];
  EXPECT_EQ(*mark.find_attribute("factor"), Attribute(-2.0));
  EXPECT_EQ(*mark.find_attribute("flag"), Attribute(true));
  EXPECT_EQ(*mark.find_attribute("label"), Attribute(std::string("a \"b\"")));
  EXPECT_EQ(*mark.find_attribute("list"), Attribute(std::vector<std::int64_t>{1, -2}));
  EXPECT_EQ(*mark.find_attribute("number"), Attribute(std::int64_t{7}));
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.value(graph.outputs[1]).name, "sum");
}

TEST(GraphText, CacheGroupsOfEveryKindReadBack) {
  const std::string text = R"(graph @g {
  group "full" paged layers [0]
  group "near" window 64 layers [1]
  group "mla" latent layers [2, 3]
  group "gdn" state layers [4]
  state %rows: bf16[P2, 16, 576]
  state %memory: f32[P3, 4, 8]
  return
}
)";
  const Graph graph = parsed(text);
  EXPECT_EQ(to_text(graph), text);
  ASSERT_EQ(graph.cache_groups.size(), 4u);
  EXPECT_EQ(graph.cache_groups[2].kind, CacheGroup::Kind::kLatent);
  EXPECT_EQ(cache_group_of(graph.value(graph.states[0]).type), 2u);
  EXPECT_EQ(cache_group_of(graph.value(graph.states[1]).type), 3u);
  EXPECT_EQ(cache_group_of(Type{DType::kFloat32, {Symbol::kTokens, Symbol::kPages}}), std::nullopt);
}

TEST(GraphText, RandomGraphsReadBack) {
  const OpTable ops = test_op_table();
  std::mt19937_64 random(11);
  for (int i = 0; i < 400; ++i) {
    const Graph graph = RandomGraph(random).make(ops, i % 40);
    ASSERT_GE(graph.nodes.size(), static_cast<std::size_t>(i % 40)) << graph.name;
    ASSERT_TRUE(verify(graph, ops).ok()) << verify(graph, ops).message();
    const std::string text = to_text(graph);
    const Result<Graph> back = parse_graph(text, &ops);
    ASSERT_TRUE(back.ok()) << back.status().message() << "\n" << text;
    EXPECT_TRUE(structurally_equal(graph, *back)) << text;
    EXPECT_EQ(to_text(*back), text);
  }
}

TEST(GraphText, DoublesKeepTheirBits) {
  std::mt19937_64 random(5);
  using Limits = std::numeric_limits<double>;
  std::vector<double> values = {0.0,
                                -0.0,
                                1.0,
                                0.1,
                                1e-6,
                                1e21,
                                1e22,
                                123456789.0,
                                Limits::max(),
                                Limits::min(),
                                Limits::denorm_min(),
                                Limits::infinity(),
                                -Limits::infinity()};
  for (int i = 0; i < 2000; ++i) values.push_back(std::bit_cast<double>(random()));
  for (const double value : values) {
    Graph graph = parsed("graph @g { f() {a = 1.0} return }");
    graph.nodes[0].attributes[0].second = value;
    const Graph back = parsed(to_text(graph));
    const Attribute* read = back.nodes.at(0).find_attribute("a");
    ASSERT_TRUE(read != nullptr && std::holds_alternative<double>(*read)) << to_text(graph);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(std::get<double>(*read)));
    } else {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(std::get<double>(*read)), std::bit_cast<std::uint64_t>(value)) << value;
    }
  }
}

TEST(GraphText, EveryByteFitsInAStringAndAName) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  Graph graph = parsed("graph @g { input %x: f32[] f() {a = \"\"} return }");
  graph.name = all;
  graph.values[0].name = all;
  graph.nodes[0].op = all;
  graph.nodes[0].attributes[0] = {all, all};
  graph.cache_groups.push_back({.name = all});
  EXPECT_TRUE(structurally_equal(parsed(to_text(graph)), graph));
}

TEST(GraphText, KeywordsAndEmptyNamesAreQuoted) {
  Graph graph = parsed("graph @g { input %x: f32[] f(%x) return }");
  for (const char* op : {"return", "input", "group", "", "mut", "1"}) {
    graph.name = op;
    graph.values[0].name = op;
    graph.nodes[0].op = op;
    EXPECT_TRUE(structurally_equal(parsed(to_text(graph)), graph)) << to_text(graph);
  }
}

TEST(GraphText, HandWrittenTextMayOmitTypes) {
  const OpTable ops = test_op_table();
  const Result<Graph> graph = parse_graph(R"(
      // A comment, // and another in it
      graph @"g"{input %x:bf16[ T ,64 ]  // at the end of a line
        weight %w: bf16[(2*T+128)/2, 64]
        %y = linear(%x, %w)
        %n, %s: bf16[T, 64] = add_rms_norm(%x, %x, %w) {eps=1e-5}
        %m = mark(%n) { number = 1 , flag = false }
        input %late: i32[]
        return %s,%m})",
                                          &ops);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(to_text(*graph), R"(graph @g {
  input %x: bf16[T, 64]
  input %late: i32[]
  weight %w: bf16[T + 64, 64]
  %y: bf16[T, T + 64] = linear(%x, %w)
  %n: bf16[T, 64], %s: bf16[T, 64] = add_rms_norm(%x, %x, %w) {eps = 1e-05}
  %m: bf16[T, 64] = mark(%n) {flag = false, number = 1}
  return %s, %m
}
)");
}

TEST(GraphText, ABrokenGraphStillPrints) {
  Graph graph = parsed(kLlamaText);
  graph.outputs.push_back(ValueId{-1});
  graph.nodes[0].operands[0] = ValueId{1000};
  graph.nodes[5].mutates.clear();
  EXPECT_THAT(to_text(graph), HasSubstr("embedding(%?1000, "));
  EXPECT_THAT(to_text(graph), HasSubstr("return %marked, %sum, %?-1"));
  EXPECT_EQ(to_text(graph, graph.nodes[3]), "store(%heads, mut %k_cache.0)");
}

TEST(StructurallyEqual, FindsEveryDifference) {
  const Graph graph = parsed(kLlamaText);
  EXPECT_TRUE(structurally_equal(graph, parsed(kLlamaText)));
  const std::function<void(Graph&)> kChanges[] = {
      [](Graph& g) { g.name = "other"; },
      [](Graph& g) { g.values[0].name = "other"; },
      [](Graph& g) { g.values[0].type.shape[0] = 7; },
      [](Graph& g) { g.values[0].type.dtype = DType::kInt64; },
      [](Graph& g) { g.values[2].kind = ValueKind::kState; },
      [](Graph& g) { g.values.back().producer = NodeId{0}; },
      [](Graph& g) { g.values.push_back({.name = "unused"}); },
      [](Graph& g) { std::swap(g.weights[0], g.weights[1]); },
      [](Graph& g) { g.inputs.pop_back(); },
      [](Graph& g) { std::swap(g.states[0], g.states[1]); },
      [](Graph& g) { g.outputs.pop_back(); },
      [](Graph& g) { g.outputs[0] = ValueId{-1}; },
      [](Graph& g) { g.cache_groups[1].window = 9; },
      [](Graph& g) { g.cache_groups[0].layers.push_back(5); },
      [](Graph& g) { g.nodes[0].op = "other"; },
      [](Graph& g) { std::swap(g.nodes[5].operands[1], g.nodes[5].operands[2]); },
      [](Graph& g) { g.nodes[5].mutates[0] = true; },
      [](Graph& g) { g.nodes[5].attributes[0].second = std::int64_t{1}; },
      [](Graph& g) { g.nodes[5].attributes[1].second = std::nextafter(0.25, 1.0); },
      [](Graph& g) { g.nodes[5].attributes[1].first = "scales"; },
      [](Graph& g) { g.nodes[7].attributes.pop_back(); },
      [](Graph& g) { g.nodes[6].results.pop_back(); },
      [](Graph& g) { g.nodes.pop_back(); },
  };
  for (std::size_t i = 0; i < std::size(kChanges); ++i) {
    Graph changed = graph;
    kChanges[i](changed);
    EXPECT_FALSE(structurally_equal(graph, changed)) << "change " << i;
    EXPECT_FALSE(structurally_equal(changed, graph)) << "change " << i;
  }
  Graph zero = graph;
  zero.nodes[5].attributes[1].second = 0.0;
  Graph minus_zero = graph;
  minus_zero.nodes[5].attributes[1].second = -0.0;
  EXPECT_FALSE(structurally_equal(zero, minus_zero));
}

struct ErrorCase {
  const char* text;
  const char* message;
};

void expect_errors(std::span<const ErrorCase> cases, const OpTable* ops) {
  for (const auto& [text, message] : cases) {
    const Result<Graph> graph = parse_graph(text, ops);
    ASSERT_FALSE(graph.ok()) << text;
    EXPECT_EQ(graph.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(graph.status().message(), HasSubstr(message)) << text;
  }
}

TEST(GraphText, ErrorsNamePlaceFoundAndExpected) {
  const ErrorCase kCases[] = {
      {"", "line 1, column 1: found the end of the text, expected 'graph'"},
      {"graph llama {", "line 1, column 7: found 'llama', expected the graph's name, as in @llama"},
      {"graph @g {\n  input x: f32[]", "line 2, column 9: found 'x', expected a value, as in %x"},
      {"graph @g {\n  input %x f32[]", "line 2, column 12: found 'f32', expected ':'"},
      {"graph @g {\n  input %x: f64[]", "line 2, column 13: found 'f64', expected a type, as in bf16[T, 64]; f32, f16"},
      {"graph @g {\n  input %x: f32 return}", "found 'return', expected '[' and the type's dimensions"},
      {"graph @g {\n  input %x: f32[T, U]", "line 2, column 20: found 'U', expected a dimension, as in T"},
      {"graph @g {\n  input %x: f32[T, ]", "expected a dimension"},
      {"graph @g {\n  input %x: f32[,]", "expected a dimension"},
      {"graph @g {\n  input %x: f32[T, 2*]", "line 2, column 20: dimension '2*', character 3: found the end"},
      {"graph @g {\n  input %x: f32[T}", "found '}', expected ',' or ']'"},
      {"graph @g { input %x: f32[] input %x: f32[] return }", "line 1, column 34: %x is defined already"},
      {"graph @g { input %hidden: f32[]\n return %hiden }",
       "line 2, column 9: %hiden is not defined before its use; near: %hidden"},
      {"graph @g { return }\n}", "line 2, column 1: found '}', expected the end of the text"},
      {"graph @g { input %x: f32[] ",
       "found the end of the text, expected group, input, weight, state, a node or return"},
      {"graph @g { group paged layers [] return }", "found 'paged', expected the group's name in quotes"},
      {"graph @g { group \"a\" half layers [] return }",
       "found 'half', expected 'paged', 'latent', 'state', or 'window'"},
      {"graph @g { group \"a\" window layers [] return }", "found 'layers', expected an integer below 2^63"},
      {"graph @g { group \"a\" paged layers [1.5] return }", "found '1.5', expected an integer"},
      {"graph @g { group \"a\" paged layers [1 2] return }", "found '2', expected ',' or ']'"},
      {"graph @g { %x: f32[] f() return }", "found 'f', expected '='"},
      {"graph @g { %x = f() return }", "found '=', expected ':' and the result's type"},
      {"graph @g { %x: f32[] = return }", "found 'return', expected an operator; a keyword as one is quoted"},
      {"graph @g { %x: f32[] = %y return }", "found %y, expected an operator"},
      {"graph @g { f return }", "found 'return', expected '('"},
      {"graph @g { input %x: f32[] f(%x %x) return }", "found %x, expected ',' or ')'"},
      {"graph @g { f(mut) return }", "found ')', expected a value"},
      {"graph @g { f() {1 = 2} return }", "found '1', expected an attribute's name"},
      {"graph @g { f() {a 2} return }", "found '2', expected '='"},
      {"graph @g { f() {a = b} return }", "found 'b', expected an attribute's value"},
      {"graph @g { f() {a = 1, a = 2} return }", "line 1, column 24: found 'a', expected each attribute once"},
      {"graph @g { f() {a = 1 b = 2} return }", "found 'b', expected ',' or '}'"},
      {"graph @g { f() {a = 9223372036854775808} return }", "expected an integer below 2^63"},
      {"graph @g { f() {a = 1e999} return }", "found '1e999', expected a double"},
      {"graph @g { f() {a = 1.5.2} return }", "expected a double"},
      {"graph @g { f() {a = -} return }", "expected an integer"},
      {"graph @g { f() {a = \"b} return }", "column 21: this string has no end on its line"},
      {"graph @g { f() {a = \"\\q\"} return }", "column 23: unknown escape"},
      {"graph @g { f() {a = \"\\xg0\"} return }", "expected two lower-case hexadecimal digits"},
      {"graph @g { % return }", "column 12: expected a name after '%'"},
      {"graph @g { ! return }", "column 12: found '!', which begins nothing"},
      {"graph @g { \x01 return }", "found byte 0x01"},
  };
  expect_errors(kCases, nullptr);
}

TEST(GraphText, DeclarationsAreChecked) {
  const OpTable ops = test_op_table();
  const ErrorCase kCases[] = {
      {"graph @g { input %x: f32[T]\n  %y = ad(%x, %x) return }",
       "line 2, column 8: no operator is named 'ad'; near: add"},
      {"graph @g { input %x: f32[T]\n  %y = add(%x) return }",
       "line 2, column 8: operator 'add': 1 operands; declared: (x, y)"},
      {"graph @g { input %x: f32[T]\n  %y: f32[B] = add(%x, %x) return }",
       "line 2, column 3: found type f32[B] for %y, expected f32[T] from 'add'"},
      {"graph @g { input %x: f32[T]\n  add(%x, %x) return }", "it has 1 results, 0 are named"},
      {"graph @g { input %x: f32[T]\n  %y, %z = add(%x, %x) return }", "it has 1 results, 2 are named"},
      {"graph @g { input %x: f32[T] state %s: f32[T] store(%x, %s) return }",
       "operand 'y' (%s) is only read here and mutated in the declaration"},
      {"graph @g { input %x: f32[T] state %s: f32[T] store(mut %s, mut %s) return }",
       "operand 'x' (%s) is mutated here and only read"},
      {"graph @g { input %x: f32[T, 8] %y = split_columns(%x) {by = 4.0} return }",
       "attribute 'by' is of kind double; declared: integer"},
  };
  expect_errors(kCases, &ops);
}

TEST(GraphText, TextSizeIsBounded) {
  EXPECT_THAT(parse_graph(std::string(kMaxGraphTextBytes + 1, ' '), nullptr).status().message(), HasSubstr("bytes"));
  for (const char* part : {"(", "[", "{", "\"", "%", "f32[", "mut ", "-", "\\", "1", "// ", "a."}) {
    std::string text = "graph @g { f(";
    for (int i = 0; i < 20000; ++i) text += part;
    EXPECT_FALSE(parse_graph(text, nullptr).ok());
  }
}

// The parser must either accept a mutated text or return an error. If it accepts the text, it must also accept the
// printed form of the graph. Printing this second graph must give the same text again.
TEST(GraphText, MutatedTextNeverCrashes) {
  const OpTable ops = test_op_table();
  std::mt19937_64 random(3);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<std::string> corpus = {kLlamaText};
  for (int i = 0; i < 8; ++i) corpus.push_back(to_text(RandomGraph(random).make(ops, 6)));
  const std::string_view kParts[] = {
      "%",   "@",     "\"", "mut ", "return", "f32[T", "]", "{", "}", "(2*T + 8)/4", "-", "/0", "9223372036854775807*",
      "nan", "input", "//", "\n",   ",",      "="};
  int accepted = 0;
  for (int i = 0; i < 8000; ++i) {
    std::string text = corpus[below(corpus.size())];
    for (std::size_t edits = 1 + below(3); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = below(text.size());
      switch (below(5)) {
        case 0: text[at] = static_cast<char>(below(256)); break;
        case 1: text.erase(at, 1 + below(12)); break;
        case 2: text.insert(at, kParts[below(std::size(kParts))]); break;
        case 3: text.insert(at, text.substr(below(text.size()), below(30))); break;
        default: text.resize(at);
      }
    }
    const Result<Graph> graph = parse_graph(text, below(2) == 0 ? &ops : nullptr);
    if (!graph.ok()) continue;
    ++accepted;
    const std::string printed = to_text(*graph);
    const Result<Graph> back = parse_graph(printed, nullptr);
    ASSERT_TRUE(back.ok()) << back.status().message() << "\n" << text;
    EXPECT_TRUE(structurally_equal(parsed(to_text(*back)), *back));
    EXPECT_EQ(to_text(*back), printed);
    (void)verify(*graph, ops).ok();
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace tessera::ir
