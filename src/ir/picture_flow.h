// Computes the data that both the SVG and the DOT picture show: the style of each node, the nodes whose values it
// reads, and the labels beside it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/picture.h"

namespace tessera::ir {

enum class NodeStyle { kKernel, kSplit, kView, kAllocate };

// An edge from the node that last wrote a value to a node that reads or writes the value.
struct FlowEdge {
  std::size_t from;
  std::size_t to;  // nodes.size() stands for the graph's outputs
  ValueId value;
  bool written;  // whether `to` writes the value
};

// A label beside a node: an input, weight or state that the node uses.
struct FlowLabel {
  ValueId value;
  bool written;
};

struct Flow {
  std::vector<NodeStyle> styles;  // one for each node
  std::vector<int> clusters;      // for each node, its index in options.clusters, or -1
  // One list of labels for each node, then one list for the graph's outputs. A list contains each value once.
  std::vector<std::vector<FlowLabel>> labels;
  std::vector<FlowEdge> edges;  // at most one for each pair of a node and a value that it uses
};

// Computes the flow. References to values or nodes that do not exist are omitted.
Flow flow_of(const Graph& graph, const PictureOptions& options);

// Returns the text as valid UTF-8 without control characters, in at most `most` characters. If text is cut off, the
// last of these characters is "…". Invalid or unprintable characters become U+FFFD.
std::string printable(std::string_view text, std::size_t most);
// Returns the value's name and type, for example "%h: bf16[T, 64]".
std::string typed_name(const Graph& graph, ValueId id);
// Returns the node's attributes as text, for example "group = 0, scale = 0.25".
std::string attributes_text(const Graph& graph, const Node& node);

}  // namespace tessera::ir
