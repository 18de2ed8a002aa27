// Catches: a node, value or cluster that is missing from a picture; an edge from the wrong writer; and a picture that
// no viewer can open, because a name in the graph contains markup or invalid UTF-8.
#include "tessera/ir/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/ir/graph_test_util.h"
#include "tessera/ir/text.h"

namespace tessera::ir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Returns "" if all tags are closed in order, the text contains no markup, and there is no control character. Otherwise
// returns the fault.
std::string xml_fault(std::string_view xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < xml.size(); ++at) {
    const auto byte = static_cast<unsigned char>(xml[at]);
    if (byte < 0x20 && byte != '\n') return "control character at " + std::to_string(at);
    if (xml[at] == '>') return "> in text at " + std::to_string(at);
    if (xml[at] == '&') {
      const std::string_view entity = xml.substr(at, xml.find(';', at) + 1 - at);
      const bool known = entity == "&amp;" || entity == "&lt;" || entity == "&gt;" || entity == "&quot;";
      if (!known) return "unknown entity at " + std::to_string(at);
    }
    if (xml[at] != '<') continue;
    const std::size_t end = xml.find('>', at);
    if (end == std::string_view::npos) return "tag without end at " + std::to_string(at);
    const std::string_view tag = xml.substr(at + 1, end - at - 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return "unexpected <" + std::string(tag) + ">";
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.emplace_back(tag.substr(0, tag.find_first_of(" \n")));
    }
    if (count(tag, "\"") % 2 != 0) return "open quote in <" + std::string(tag) + ">";
    at = end;
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

Graph llama() {
  Result<Graph> graph = parse_graph(kLlamaText, nullptr);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *std::move(graph) : Graph{};
}

// Cuts the graph into pieces around the attention, node 5.
PictureOptions in_pieces(const OpTable& ops) {
  return {.ops = &ops,
          .clusters = {{.title = "piece <0>"}, {.title = "split", .is_split = true}, {.title = "piece 1"}},
          .cluster_of_node = {0, 0, 0, 0, 0, 1, 2, 2}};
}

TEST(Svg, ShowsEveryNodeResultAndLabel) {
  const OpTable ops = test_op_table();
  const Graph graph = llama();
  const std::string svg = to_svg(graph, {.ops = &ops, .clusters = {}, .cluster_of_node = {}});
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "<rect class=\"box"), graph.nodes.size() + 1);
  for (const Node& node : graph.nodes) {
    EXPECT_THAT(svg, HasSubstr(">" + node.op + "</tspan>"));
    for (const ValueId id : node.results) {
      EXPECT_THAT(svg, HasSubstr(">%" + graph.value(id).name + ": " + graph.value(id).type.to_string() + "</text>"));
    }
  }
  EXPECT_THAT(svg, HasSubstr(">model.norm.weight bf16[64]</text>"));
  EXPECT_THAT(svg, HasSubstr(">input_ids i32[T]</text>"));
  EXPECT_THAT(svg, HasSubstr(">mut k_cache.0 bf16[P, 16, 2, 16]</text>"));
  EXPECT_THAT(svg, HasSubstr("group = 0, scale = 0.25"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_EQ(count(svg, "<rect class=\"box split\""), 1u);
  EXPECT_EQ(count(svg, "<rect class=\"box view\""), 1u);
  EXPECT_EQ(count(svg, "<rect class=\"box allocate\""), 1u);
  EXPECT_EQ(count(svg, "<rect class=\"frame"), 0u);
}

TEST(Svg, DrawsPiecesAsFrames) {
  const OpTable ops = test_op_table();
  const std::string svg = to_svg(llama(), in_pieces(ops));
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "<rect class=\"frame\""), 2u);
  EXPECT_EQ(count(svg, "<rect class=\"frame split\""), 1u);
  EXPECT_THAT(svg, HasSubstr(">piece &lt;0&gt;</text>"));
}

TEST(Svg, HeightGrowsWithTheGraph) {
  const auto height = [](const std::string& svg) { return std::stoi(svg.substr(svg.find("height=\"") + 8)); };
  Graph graph = llama();
  const int before = height(to_svg(graph));
  graph.nodes.insert(graph.nodes.end(), 100, graph.nodes[3]);
  EXPECT_GT(height(to_svg(graph)), before + 100 * 30);
}

TEST(Dot, ShowsNodesEdgesAndClusters) {
  const OpTable ops = test_op_table();
  const std::string dot = to_dot(llama(), in_pieces(ops));
  EXPECT_THAT(dot,
              AllOf(HasSubstr("digraph \"llama\" {"), HasSubstr("n0 [label=\"embedding\\n%embedding: bf16[T, 64]\""),
                    HasSubstr("subgraph cluster_1 {\n    label=\"split\""), HasSubstr("label=\"piece <0>\"")));
  EXPECT_EQ(count(dot, "{"), count(dot, "}"));
  EXPECT_EQ(count(dot, "shape=plaintext"), 7u);
  EXPECT_THAT(dot, HasSubstr("n0 -> n1;"));
  EXPECT_THAT(dot, HasSubstr("n4 -> n5 [color="));
}

// The edge to the norm must come from attention, which wrote the memory, and not from the allocation of the memory.
TEST(Dot, AnEdgeComesFromTheLastWriter) {
  const OpTable ops = test_op_table();
  const std::string dot = to_dot(llama());
  EXPECT_THAT(dot, AllOf(HasSubstr("n5 -> n6;"), Not(HasSubstr("n4 -> n6"))));

  const Result<Graph> viewed = parse_graph(R"(graph @g { input %x: f32[T, 8]
      %a = empty_like(%x) %v = split_columns(%a) store(%x, mut %v) %y = add(%a, %a) return %y })",
                                           &ops);
  ASSERT_TRUE(viewed.ok()) << viewed.status().message();
  EXPECT_THAT(to_dot(*viewed, {.ops = &ops, .clusters = {}, .cluster_of_node = {}}),
              AllOf(HasSubstr("n2 -> n3;"), Not(HasSubstr("n0 -> n3"))));
}

TEST(Picture, MarkupInNamesIsEscaped) {
  Graph graph = llama();
  graph.name = "a<b>&\"c\"";
  graph.nodes[0].op = "</text><script>";
  graph.values[0].name = "back\\slash\"quote";
  const std::string svg = to_svg(graph);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("<script>")), HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;")));
  const std::string dot = to_dot(graph);
  EXPECT_THAT(dot, AllOf(HasSubstr("digraph \"a<b>&\\\"c\\\"\""), HasSubstr("back\\\\slash\\\"quote")));
}

TEST(Picture, AnyNameStaysText) {
  Graph graph = llama();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string bad[] = {
      all, "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xef\xbf\xbf", "\xc0\xaf", "\xf5\x80\x80\x80", "\xc2\x85"};
  for (const std::string& name : bad) {
    graph.values[0].name = name;
    EXPECT_EQ(xml_fault(to_svg(graph)), "");
    EXPECT_THAT(to_svg(graph), HasSubstr("\xef\xbf\xbd"));
  }
  graph.values[0].name = "größe";
  EXPECT_THAT(to_svg(graph), HasSubstr("größe"));
  graph.values[0].name = std::string(10000, 'x');
  EXPECT_THAT(to_svg(graph), HasSubstr("xxx…</text>"));
}

TEST(Picture, AnyGraphCanBeDrawn) {
  const OpTable ops = test_op_table();
  std::mt19937_64 random(23);
  for (int i = 0; i < 60; ++i) {
    const Graph graph = RandomGraph(random).make(ops, i);
    EXPECT_EQ(xml_fault(to_svg(graph, {.ops = &ops, .clusters = {}, .cluster_of_node = {}})), "");
    EXPECT_FALSE(to_dot(graph).empty());
  }
  Graph broken = llama();
  broken.nodes[0].operands = {ValueId{-1}, ValueId{99}, broken.outputs[0]};
  broken.nodes[3].mutates.clear();
  broken.values.back().producer = NodeId{77};
  broken.outputs.push_back(ValueId{-5});
  EXPECT_EQ(xml_fault(to_svg(broken, {.ops = nullptr, .clusters = {{"one"}}, .cluster_of_node = {0, 5, -1}})), "");
  EXPECT_EQ(xml_fault(to_svg(Graph{})), "");
  EXPECT_THAT(to_dot(Graph{}), HasSubstr("digraph \"\" {"));
}

}  // namespace
}  // namespace tessera::ir
