// Catches: a graph that is missing from the output or not separated from the next graph; JSON that lacks facts which
// the text shows; an SVG file with several graphs, which no viewer can open.
#include "tessera/cli/inspect/shown_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/json.h"
#include "tessera/ir/text.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

NamedGraph make_graph(const std::string& name, const std::string& factor) {
  const std::string text = "graph @g {\n  input %x: f32[T, 8]\n  %y: f32[T, 8] = scale(%x) {factor = " + factor +
                           "}\n  %out: f32[T, 8] = empty_like(%y)\n  kv(%y, mut %out) {group = 3}\n  return %out\n}";
  NamedGraph graph{.name = name, .graph = *ir::parse_graph(text, nullptr), .text = text + "\n"};
  graph.picture.clusters = {{.title = "piece 0"}, {.title = "split op 1: kv", .is_split = true}};
  graph.picture.cluster_of_node = {0, -1, 1};
  return graph;
}

const NamedGraph kA = make_graph("pass:p:body:before", "0.5");
const NamedGraph kB = make_graph("pass:p:body:after", "0.25");
const std::vector<const NamedGraph*> kOne = {&kA};
const std::vector<const NamedGraph*> kTwo = {&kA, &kB};

TEST(ShownGraphs, OneGraphIsShownUnchanged) {
  EXPECT_EQ(*shown_graphs(kOne, ExplainFormat::kText), kA.text);
  EXPECT_THAT(*shown_graphs(kOne, ExplainFormat::kDot), AllOf(StartsWith("digraph"), HasSubstr("piece 0")));
  EXPECT_THAT(*shown_graphs(kOne, ExplainFormat::kSvg), HasSubstr("<svg"));
}

TEST(ShownGraphs, SeveralGraphsAreNamed) {
  EXPECT_EQ(*shown_graphs(kTwo, ExplainFormat::kText),
            "// pass:p:body:before\n" + kA.text + "\n// pass:p:body:after\n" + kB.text);
  EXPECT_THAT(*shown_graphs(kTwo, ExplainFormat::kDot),
              AllOf(StartsWith("// pass:p:body:before\ndigraph"), HasSubstr("\n// pass:p:body:after\ndigraph")));
  const Status refused = shown_graphs(kTwo, ExplainFormat::kSvg).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), AllOf(StartsWith("--graph"), HasSubstr("pass:p:body:before, pass:p:body:after")));
}

TEST(ShownGraphs, JsonHasValuesNodesAndParts) {
  const Json graph = *Json::parse(*shown_graphs(kOne, ExplainFormat::kJson), "json");
  EXPECT_EQ(graph.find("graph")->as_string(), "pass:p:body:before");
  ASSERT_EQ(graph.find("values")->as_array().size(), 3u);
  const Json& x = graph.find("values")->as_array()[0];
  EXPECT_EQ(x.find("kind")->as_string(), "input");
  EXPECT_EQ(x.find("type")->as_string(), "f32[T, 8]");
  const Json::Array& nodes = graph.find("nodes")->as_array();
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].find("op")->as_string(), "scale");
  EXPECT_EQ(nodes[0].find("attributes")->find("factor")->as_double(), 0.5);
  EXPECT_EQ(nodes[0].find("part")->as_string(), "piece 0");
  EXPECT_EQ(nodes[1].find("part"), nullptr);
  EXPECT_EQ(nodes[2].find("mutated")->as_array().at(0).as_string(), "out");
  EXPECT_EQ(nodes[2].find("attributes")->find("group")->as_int(), 3);
  EXPECT_EQ(graph.find("outputs")->as_array().at(0).as_string(), "out");

  const Json both = *Json::parse(*shown_graphs(kTwo, ExplainFormat::kJson), "json");
  ASSERT_EQ(both.as_array().size(), 2u);
  EXPECT_EQ(both.as_array()[1].find("graph")->as_string(), "pass:p:body:after");
}

}  // namespace
}  // namespace tessera::cli
