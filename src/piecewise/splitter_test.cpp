// Tests how a graph is cut at split ops. Catches: nodes that a cut loses, repeats or reorders; a split op whose part
// contains other nodes; values that are lost at a cut or get another number (slot) there; and a piece with an operator
// that cannot be captured.
#include "tessera/piecewise/splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/ir/graph_test_util.h"
#include "tessera/ir/verify.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/piecewise/stitching_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names;
using testing::part_words;
using testing::parts_are;
using testing::Piece;
using testing::split;
using testing::SplitOp;
using testing::word_table;
using testing::words_graph;

TEST(Splitter, CutsAtSplitOps) {
  EXPECT_THAT(split("a b attention c"), parts_are(Piece("a b"), SplitOp("attention"), Piece("c")));
  EXPECT_THAT(split("a attention b attention c"),
              parts_are(Piece("a"), SplitOp("attention"), Piece("b"), SplitOp("attention"), Piece("c")));
  EXPECT_THAT(split("a b c"), parts_are(Piece("a b c")));
  EXPECT_THAT(split("attention a"), parts_are(SplitOp("attention"), Piece("a")));
  EXPECT_THAT(split("a attention"), parts_are(Piece("a"), SplitOp("attention")));
  EXPECT_THAT(split("attention"), parts_are(SplitOp("attention")));
  EXPECT_THAT(split("a attention attention b"),
              parts_are(Piece("a"), SplitOp("attention"), SplitOp("attention"), Piece("b")));
}

TEST(Splitter, TheUserNamesTheSplitOps) {
  EXPECT_THAT(split("a attention b moe c", {}), parts_are(Piece("a attention b moe c")));
  EXPECT_THAT(split("a attention b moe c", {"moe"}), parts_are(Piece("a attention b"), SplitOp("moe"), Piece("c")));
  EXPECT_THAT(split("a attention moe c", {"moe", "attention", "moe"}),
              parts_are(Piece("a"), SplitOp("attention"), SplitOp("moe"), Piece("c")));
  EXPECT_THAT(split("a b", {"a", "b"}), parts_are(SplitOp("a"), SplitOp("b")));
}

TEST(Splitter, PartsAreNamedByTheirPlace) {
  const StitchingGraph graph =
      *split_graph(words_graph("a attention b"), word_table(), std::vector<std::string>{"attention"});
  EXPECT_EQ(graph.name, "words");
  EXPECT_TRUE(graph.capturable);
  EXPECT_EQ(graph.parts[0].name, "piece 0");
  EXPECT_EQ(graph.parts[1].name, "split op 1: attention");
  EXPECT_EQ(graph.parts[2].name, "piece 2");
  EXPECT_EQ(graph.num_pieces(), 2);
  EXPECT_EQ(graph.num_split_ops(), 1);
}

TEST(Splitter, CutsAtUncapturableOperatorsWithANote) {
  const StitchingGraph graph = *split_graph(words_graph("a host_read b attention host_read c"), word_table(),
                                            std::vector<std::string>{"attention"});
  EXPECT_THAT(testing::part_words(graph), parts_are(Piece("a"), SplitOp("host_read"), Piece("b"), SplitOp("attention"),
                                                    SplitOp("host_read"), Piece("c")));
  EXPECT_THAT(graph.notes, ElementsAre(AllOf(HasSubstr("host_read"), HasSubstr("cannot be captured"))));
  EXPECT_FALSE(graph.capturable) << "as a whole";
  EXPECT_THAT(to_text(graph), HasSubstr("\nnote: operator host_read cannot be captured"));
  // If the cut was requested, there is no note.
  EXPECT_THAT(split_graph(words_graph("a host_read b"), word_table(), std::vector<std::string>{"host_read"})->notes,
              IsEmpty());
}

TEST(Splitter, TakesAnotherSpellingOfAName) {
  EXPECT_THAT(split("a attention b", {"sglang.unified_attention_with_output"}),
              parts_are(Piece("a"), SplitOp("attention"), Piece("b")));
}

TEST(Splitter, AnUnknownSplitOpIsAnError) {
  EXPECT_EQ(split_graph(words_graph("a b"), word_table(), std::vector<std::string>{"atention"}).status().code(),
            StatusCode::kNotFound);
}

TEST(Splitter, AGraphWithoutNodesHasNoParts) {
  EXPECT_THAT(split_graph(ir::Graph{.name = "empty"}, word_table(), std::vector<std::string>{})->parts, IsEmpty());
}

// A graph with a value that is made before the cut, written by the split op, and read after the cut.
constexpr const char* kAcrossTheCut = R"(graph @g {
  input %x: f32[T, 8]
  weight %w: f32[8, 8]
  state %k: f32[P, 16, 1, 8]
  state %v: f32[P, 16, 1, 8]
  group "full" paged layers [0]
  %q: f32[T, 8] = linear(%x, %w)
  %flat: f32[8*T] = reshape(%q) {shape = "8*T"}
  %out: f32[T, 8] = empty_like(%q)
  attention(%q, %k, %v, mut %out) {group = 0, scale = 1.0}
  %back: f32[T, 8] = reshape(%flat) {shape = "T, 8"}
  %sum: f32[T, 8] = add(%back, %out)
  %end: f32[T, 8] = linear(%sum, %w)
  return %end, %q
})";

StitchingGraph split_across() {
  const ir::Graph graph = *ir::parse_graph(kAcrossTheCut, &built_in_ops());
  EXPECT_TRUE(ir::verify(graph, built_in_ops()).ok());
  StitchingGraph stitched = *split_graph(graph, built_in_ops(), std::vector<std::string>{"attention"});
  EXPECT_EQ(testing::broken_rule(graph, stitched), "");
  return stitched;
}

TEST(Splitter, ValuesCrossCutsAsInputsAndOutputs) {
  const StitchingGraph graph = split_across();
  ASSERT_EQ(graph.parts.size(), 3u);
  const auto& [before, attention, after] = std::tie(graph.parts[0].graph, graph.parts[1].graph, graph.parts[2].graph);
  EXPECT_THAT(names(before, before.inputs), ElementsAre("x"));
  EXPECT_THAT(names(before, before.outputs), ElementsAre("q", "flat", "out"));
  EXPECT_THAT(names(attention, attention.inputs), ElementsAre("q", "out"));
  EXPECT_THAT(names(attention, attention.states), ElementsAre("k", "v"));
  EXPECT_THAT(attention.outputs, IsEmpty());
  EXPECT_THAT(names(after, after.inputs), ElementsAre("flat", "out"));
  EXPECT_THAT(names(after, after.weights), ElementsAre("w"));
  EXPECT_THAT(names(after, after.outputs), ElementsAre("end"));
  EXPECT_EQ(graph.slots[static_cast<std::size_t>(graph.outputs[0])].name, "end");
  EXPECT_EQ(graph.slots[static_cast<std::size_t>(graph.outputs[1])].name, "q");
  EXPECT_EQ(graph.cache_groups.size(), 1u);
}

TEST(Splitter, AMutatedValueKeepsItsSlotOnBothSides) {
  const StitchingGraph graph = split_across();
  const auto slot_of = [&](std::size_t part, std::string_view name) {
    const Part& p = graph.parts[part];
    for (std::size_t i = 0; i < p.slots.size(); ++i)
      if (p.graph.values[i].name == name) return p.slots[i];
    return -1;
  };
  EXPECT_GE(slot_of(0, "out"), 0);
  EXPECT_EQ(slot_of(0, "out"), slot_of(1, "out"));
  EXPECT_EQ(slot_of(1, "out"), slot_of(2, "out"));
  EXPECT_EQ(slot_of(0, "w"), slot_of(2, "w"));
  EXPECT_EQ(graph.parts[1].graph.nodes[0].mutates, (std::vector<bool>{false, false, false, true}));
}

TEST(Splitter, TextShowsPartsAndWhatCrosses) {
  EXPECT_EQ(to_text(split_across()), R"(stitching graph @g: 2 pieces, 1 split ops
piece 0
  in:  %x: f32[T, 8]
  ops: linear reshape empty_like
  out: %q: f32[T, 8], %flat: f32[8*T], %out: f32[T, 8]
split op 1: attention
  in:  %q: f32[T, 8], %out: f32[T, 8]
  out: -
piece 2
  in:  %flat: f32[8*T], %out: f32[T, 8]
  ops: reshape add linear
  out: %end: f32[T, 8]
)");
}

TEST(Splitter, KeepsItsRulesOnRandomGraphs) {
  const ir::OpTable ops = ir::test_op_table();
  std::mt19937_64 random(7);
  const std::vector<std::string> all = {"add",  "linear",        "add_rms_norm", "store",
                                        "mark", "split_columns", "empty_like"};
  for (int i = 0; i < 500; ++i) {
    const ir::Graph graph = ir::RandomGraph(random).make(ops, static_cast<int>(random() % 40));
    std::vector<std::string> split_ops = {"attention"};
    for (const std::string& name : all)
      if (random() % 4 == 0) split_ops.push_back(name);
    const Result<StitchingGraph> stitched = split_graph(graph, ops, split_ops);
    ASSERT_TRUE(stitched.ok()) << stitched.status().to_string();
    ASSERT_EQ(testing::broken_rule(graph, *stitched), "") << "case " << i << "\n" << ir::to_text(graph);
  }
}

}  // namespace
}  // namespace tessera
