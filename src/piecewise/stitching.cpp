#include "tessera/piecewise/stitching.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

std::string names_of(const ir::Graph& graph, const std::vector<ir::ValueId>& values) {
  std::string text;
  for (const ir::ValueId id : values)
    text += fmt::format("{}%{}: {}", text.empty() ? "" : ", ", graph.value(id).name, graph.value(id).type.to_string());
  return text.empty() ? "-" : text;
}

std::int64_t count(const StitchingGraph& graph, Part::Kind kind) {
  return std::count_if(graph.parts.begin(), graph.parts.end(), [&](const Part& p) { return p.kind == kind; });
}

}  // namespace

std::int64_t StitchingGraph::num_pieces() const { return count(*this, Part::Kind::kPiece); }
std::int64_t StitchingGraph::num_split_ops() const { return count(*this, Part::Kind::kSplitOp); }

std::string_view part_kind_name(Part::Kind kind) { return kind == Part::Kind::kPiece ? "piece" : "split_op"; }

std::string to_text(const StitchingGraph& graph) {
  std::string text = fmt::format("stitching graph @{}: {} pieces, {} split ops\n", graph.name, graph.num_pieces(),
                                 graph.num_split_ops());
  for (const Part& part : graph.parts) {
    text += fmt::format("{}\n  in:  {}\n", part.name, names_of(part.graph, part.graph.inputs));
    if (part.kind == Part::Kind::kPiece) {
      text += "  ops:";
      for (const ir::Node& node : part.graph.nodes) text += " " + node.op;
      text += "\n";
    }
    text += fmt::format("  out: {}\n", names_of(part.graph, part.graph.outputs));
  }
  for (const std::string& note : graph.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace tessera
