// What both pictures show: how each node looks, which nodes feed it, which labels stand beside it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/picture.h"

namespace tessera::ir {

enum class NodeStyle { kKernel, kSplit, kView, kAllocate };

// Content flowing from the node that wrote it last.
struct FlowEdge {
  std::size_t from;
  std::size_t to;  // nodes.size(): the graph's outputs
  ValueId value;
  bool written;  // `to` writes it
};

// An input, weight or state beside the node that uses it.
struct FlowLabel {
  ValueId value;
  bool written;
};

struct Flow {
  std::vector<NodeStyle> styles;               // [nodes]
  std::vector<int> clusters;                   // [nodes] index into options.clusters or -1
  std::vector<std::vector<FlowLabel>> labels;  // [nodes + 1], each value once; the last are outputs
  std::vector<FlowEdge> edges;                 // each value once for a node
};

// Leaves out what does not exist.
Flow flow_of(const Graph& graph, const PictureOptions& options);

// Valid UTF-8 without control characters, of at most `most` characters; what is cut or cannot be shown becomes "…" or
// U+FFFD.
std::string printable(std::string_view text, std::size_t most);
// "%h: bf16[T, 64]"
std::string typed_name(const Graph& graph, ValueId id);
// "group = 0, scale = 0.25"
std::string attributes_text(const Graph& graph, const Node& node);

}  // namespace tessera::ir
