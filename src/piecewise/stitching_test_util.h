// Helpers for tests of splitting. Graphs are written as words, and a matcher makes each test one line.
//
//   EXPECT_THAT(split("a b attention c"), parts_are(Piece("a b"), SplitOp("attention"), Piece("c")));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/op_decl.h"
#include "tessera/ir/text.h"
#include "tessera/piecewise/splitter.h"
#include "tessera/piecewise/stitching.h"

namespace tessera::testing {

// The kind of a part, and the part's operators in order.
struct PartWords {
  Part::Kind kind;
  std::string ops;
  friend bool operator==(const PartWords&, const PartWords&) = default;
  friend std::ostream& operator<<(std::ostream& out, const PartWords& part) {
    return out << (part.kind == Part::Kind::kPiece ? "Piece(" : "SplitOp(") << part.ops << ")";
  }
};
inline PartWords Piece(std::string ops) { return {Part::Kind::kPiece, std::move(ops)}; }
inline PartWords SplitOp(std::string op) { return {Part::Kind::kSplitOp, std::move(op)}; }

template <class... Parts>
auto parts_are(Parts... parts) {
  return ::testing::ElementsAreArray(std::vector<PartWords>{parts...});
}

inline std::vector<PartWords> part_words(const StitchingGraph& graph) {
  std::vector<PartWords> words;
  for (const Part& part : graph.parts) {
    std::string ops;
    for (const ir::Node& node : part.graph.nodes) ops += (ops.empty() ? "" : " ") + node.op;
    words.push_back({part.kind, ops});
  }
  return words;
}

namespace word_ops {
inline Result<std::vector<ir::Type>> like_first(const ir::OpSignature& s) { return std::vector{s.operands[0]}; }
inline ir::OpDecl word(std::string_view name, bool capturable = true, bool split = false) {
  return {.name = name,
          .summary = "x",
          .operands = {{"x"}},
          .infer = like_first,
          .capturable = capturable,
          .split_by_default = split};
}
inline const ir::OpDecl kA = word("a"), kB = word("b"), kC = word("c");
inline const ir::OpDecl kAttention = word("attention", true, true);
inline const ir::OpDecl kMoe = word("moe");
inline const ir::OpDecl kHostRead = word("host_read", false, true);  // cannot be captured
}  // namespace word_ops

// Returns a table of unary operators without kernels: a, b, c, attention (a default split op), moe, and host_read
// (cannot be captured).
inline const ir::OpTable& word_table() {
  using namespace word_ops;
  static const ir::OpTable table({&kA, &kB, &kC, &kAttention, &kMoe, &kHostRead});
  return table;
}

// Makes a graph in which each operator reads the result of the previous one. The last result is the output.
inline ir::Graph words_graph(std::string_view words) {
  std::istringstream in{std::string(words)};
  std::string text = "graph @words { input %v0: f32[T, 4] ";
  int made = 0;
  for (std::string op; in >> op; ++made)
    text += "%v" + std::to_string(made + 1) + " = " + op + "(%v" + std::to_string(made) + ") ";
  Result<ir::Graph> graph = ir::parse_graph(text + "return %v" + std::to_string(made) + " }", &word_table());
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return graph.ok() ? *std::move(graph) : ir::Graph{};
}

inline std::vector<PartWords> split(std::string_view words, const std::vector<std::string>& split_ops = {"attention"}) {
  const Result<StitchingGraph> stitched = split_graph(words_graph(words), word_table(), split_ops);
  EXPECT_TRUE(stitched.ok()) << stitched.status().to_string();
  return stitched.ok() ? part_words(*stitched) : std::vector<PartWords>{};
}

inline std::vector<std::string> names(const ir::Graph& graph, const std::vector<ir::ValueId>& values) {
  std::vector<std::string> out;
  for (const ir::ValueId id : values) out.push_back(graph.value(id).name);
  return out;
}

// Checks three rules for every split. All nodes are present in order. The slots are the values of the source graph. The
// inputs and outputs of a part are exactly the values that cross its borders. Returns "" if the rules hold, and
// otherwise what is wrong.
inline std::string broken_rule(const ir::Graph& source, const StitchingGraph& stitched) {
  if (stitched.slots.size() != source.values.size()) return "slots";
  for (std::size_t i = 0; i < source.values.size(); ++i) {
    const Slot& slot = stitched.slots[i];
    const ir::Value& value = source.values[i];
    if (slot.name != value.name || slot.type != value.type || slot.kind != value.kind) return "slot " + slot.name;
  }
  std::vector<int> made_in(source.values.size(), -1);
  std::vector<int> last_in(source.values.size(), -1);
  std::size_t next = 0;
  for (std::size_t p = 0; p < stitched.parts.size(); ++p) {
    const Part& part = stitched.parts[p];
    const std::string where = " of " + part.name;
    if (part.slots.size() != part.graph.values.size()) return "slots" + where;
    if (part.graph.nodes.empty()) return "no nodes" + where;
    if (part.kind == Part::Kind::kSplitOp && part.graph.nodes.size() != 1) return "split op not alone" + where;
    const auto slot_of = [&](ir::ValueId id) { return static_cast<std::size_t>(part.slots[id.index()]); };
    for (std::size_t i = 0; i < part.graph.values.size(); ++i) {
      const Slot& slot = stitched.slots[static_cast<std::size_t>(part.slots[i])];
      if (part.graph.values[i].name != slot.name || part.graph.values[i].type != slot.type) return "value" + where;
    }
    for (std::size_t n = 0; n < part.graph.nodes.size(); ++n, ++next) {
      const ir::Node& node = part.graph.nodes[n];
      if (next >= source.nodes.size()) return "too many nodes";
      const ir::Node& want = source.nodes[next];
      if (node.op != want.op || node.attributes != want.attributes || node.mutates != want.mutates ||
          node.operands.size() != want.operands.size() || node.results.size() != want.results.size())
        return "node " + std::to_string(n) + where;
      for (std::size_t i = 0; i < want.operands.size(); ++i) {
        if (slot_of(node.operands[i]) != want.operands[i].index()) return "operand" + where;
        last_in[want.operands[i].index()] = static_cast<int>(p);
      }
      for (std::size_t i = 0; i < want.results.size(); ++i) {
        if (slot_of(node.results[i]) != want.results[i].index()) return "result" + where;
        const ir::Value& value = part.graph.value(node.results[i]);
        if (value.kind != ir::ValueKind::kResult || value.producer.index() != n) return "producer" + where;
        made_in[want.results[i].index()] = static_cast<int>(p);
      }
    }
  }
  if (next != source.nodes.size()) return "nodes are missing";
  for (const ir::ValueId output : source.outputs) last_in[output.index()] = static_cast<int>(stitched.parts.size());
  for (std::size_t p = 0; p < stitched.parts.size(); ++p) {
    const Part& part = stitched.parts[p];
    std::vector<std::string> inputs, outputs, weights, states;
    for (std::size_t i = 0; i < part.slots.size(); ++i) {
      const auto slot = static_cast<std::size_t>(part.slots[i]);
      const ir::ValueKind kind = stitched.slots[slot].kind;
      const bool here = made_in[slot] == static_cast<int>(p);
      if (kind == ir::ValueKind::kWeight) weights.push_back(stitched.slots[slot].name);
      if (kind == ir::ValueKind::kState) states.push_back(stitched.slots[slot].name);
      if (kind == ir::ValueKind::kInput || (kind == ir::ValueKind::kResult && !here))
        inputs.push_back(stitched.slots[slot].name);
      if (here && last_in[slot] > static_cast<int>(p)) outputs.push_back(stitched.slots[slot].name);
    }
    if (names(part.graph, part.graph.inputs) != inputs) return "inputs of " + part.name;
    if (names(part.graph, part.graph.outputs) != outputs) return "outputs of " + part.name;
    if (names(part.graph, part.graph.weights) != weights) return "weights of " + part.name;
    if (names(part.graph, part.graph.states) != states) return "states of " + part.name;
  }
  return "";
}

}  // namespace tessera::testing
