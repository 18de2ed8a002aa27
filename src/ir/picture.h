// Draws pictures of a graph: SVG directly, and DOT for Graphviz. Both can show the pieces of a split graph as clusters.
//
//   PictureOptions options;
//   options.ops = &ops;
//   std::string svg = to_svg(graph, options);
//
// The SVG shows the nodes in one column, in execution order. Each node is a rounded box with its operator and results.
// Arrows go from a value's writer to its readers. Small labels at the left show inputs, weights and states. Colours
// follow the viewer's light or dark scheme. Any graph can be drawn, even if verify() returns an error for it.
#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera::ir {

struct PictureCluster {
  std::string title;      // for example "piece 3"
  bool is_split = false;  // whether the cluster is a split op, which runs between recorded graphs
};

struct PictureOptions {
  // The table must outlive the drawing. If `ops` is null, operators that split the graph, make views or allocate look
  // like kernels.
  const OpTable* ops = nullptr;
  std::vector<PictureCluster> clusters;
  // For each node, the index of its cluster in `clusters`, or -1 if it has no cluster. Empty if there are no clusters.
  // Neighbouring nodes in the same cluster share a frame.
  std::vector<int> cluster_of_node;
};

std::string to_dot(const Graph& graph, const PictureOptions& options = {});
std::string to_svg(const Graph& graph, const PictureOptions& options = {});

}  // namespace tessera::ir
