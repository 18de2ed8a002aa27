#include <fmt/format.h>

#include "tessera/ir/picture.h"
#include "tessera/ir/picture_flow.h"

namespace tessera::ir {
namespace {

constexpr std::size_t kMostCharacters = 64;

// Returns a DOT string with its quotes. A line break in `text` becomes a line break in the label.
std::string dot_string(std::string_view text) {
  std::string out = "\"";
  while (true) {
    const std::size_t end = text.find('\n');
    for (const char c : printable(text.substr(0, end), kMostCharacters)) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    if (end == std::string_view::npos) return out + "\"";
    out += "\\n";
    text.remove_prefix(end + 1);
  }
}

std::string_view style_attributes(NodeStyle style) {
  switch (style) {
    case NodeStyle::kSplit: return "fillcolor=\"#ffedd5\", color=\"#d97706\"";
    case NodeStyle::kView: return "fillcolor=\"#ffffff\", color=\"#94a3b8\", style=\"rounded,dashed\"";
    case NodeStyle::kAllocate: return "fillcolor=\"#ffffff\", color=\"#94a3b8\", style=\"rounded,dotted\"";
    case NodeStyle::kKernel: break;
  }
  return "fillcolor=\"#eff4fb\", color=\"#8aa4c8\"";
}

std::string_view label_color(ValueKind kind) {
  return kind == ValueKind::kInput ? "#15803d" : kind == ValueKind::kState ? "#b45309" : "#6d4fc4";
}

class DotWriter {
 public:
  DotWriter(const Graph& graph, const PictureOptions& options)
      : graph_(graph), options_(options), flow_(flow_of(graph, options)) {}

  std::string write() {
    out_ = fmt::format("digraph {} {{\n", dot_string(graph_.name));
    out_ += "  graph [rankdir=TB, bgcolor=\"#ffffff\", fontname=\"Helvetica\"];\n";
    out_ += "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11];\n";
    out_ += "  edge [color=\"#64748b\", fontname=\"Helvetica\", fontsize=9];\n";
    write_clusters();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (flow_.clusters[i] < 0) write_node(i, "  ");
    }
    if (!graph_.outputs.empty()) write_outputs();
    for (std::size_t i = 0; i < flow_.labels.size(); ++i) write_labels(i);
    for (const FlowEdge& edge : flow_.edges) {
      out_ += fmt::format("  n{} -> n{}{};\n", edge.from, edge.to, edge.written ? " [color=\"#d97706\"]" : "");
    }
    return out_ + "}\n";
  }

 private:
  void write_clusters() {
    for (std::size_t c = 0; c < options_.clusters.size(); ++c) {
      const PictureCluster& cluster = options_.clusters[c];
      out_ += fmt::format(
          "  subgraph cluster_{} {{\n    label={}; style=\"rounded,filled\"; {};\n", c, dot_string(cluster.title),
          cluster.is_split ? "color=\"#f0c48a\"; fillcolor=\"#fff8ee\"" : "color=\"#b7d4c0\"; fillcolor=\"#f2faf4\"");
      for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
        if (flow_.clusters[i] == static_cast<int>(c)) write_node(i, "    ");
      }
      out_ += "  }\n";
    }
  }

  void write_node(std::size_t i, std::string_view indent) {
    const Node& node = graph_.nodes[i];
    std::string label = printable(node.op, kMostCharacters);
    for (const ValueId id : node.results) label += "\n" + printable(typed_name(graph_, id), kMostCharacters);
    out_ += fmt::format("{}n{} [label={}, {}];\n", indent, i, dot_string(label), style_attributes(flow_.styles[i]));
  }

  void write_outputs() {
    std::string label = "return";
    for (const ValueId id : graph_.outputs) label += "\n" + printable(typed_name(graph_, id), kMostCharacters);
    out_ += fmt::format("  n{} [label={}, shape=ellipse, fillcolor=\"#e2e8f0\", color=\"#64748b\"];\n",
                        graph_.nodes.size(), dot_string(label));
  }

  void write_labels(std::size_t node) {
    for (std::size_t i = 0; i < flow_.labels[node].size(); ++i) {
      const auto& [id, written] = flow_.labels[node][i];
      const std::string label = fmt::format("n{}_{}", node, i);
      out_ += fmt::format("  {} [label={}, shape=plaintext, style=\"\", fontsize=9, fontcolor=\"{}\"];\n", label,
                          dot_string(printable(typed_name(graph_, id), kMostCharacters)),
                          label_color(graph_.value(id).kind));
      out_ += fmt::format("  {} -> n{} [style=dotted, dir={}];\n", label, node, written ? "back" : "none");
    }
  }

  const Graph& graph_;
  const PictureOptions& options_;
  const Flow flow_;
  std::string out_;
};

}  // namespace

std::string to_dot(const Graph& graph, const PictureOptions& options) { return DotWriter(graph, options).write(); }

}  // namespace tessera::ir
