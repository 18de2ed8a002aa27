#include "tessera/compile/passes/fuse_native_forms.h"

#include <algorithm>

#include "tessera/compile/passes/native_form.h"
#include "tessera/compile/passes/rewrite.h"

namespace tessera {
namespace {

// Replaces the matches of the form in the order of nodes. Skips a match that begins before the end of an earlier match,
// so that no two replaced matches overlap. Returns false if there is no match.
bool fuse_apart(const FusedForm& form, const NativeForm& example, const ir::OpTable& ops, ir::Graph& graph) {
  const GraphFacts facts(graph, ops);
  std::vector<FormMatch> matches;
  ir::NodeId last = ir::kNoNode;  // last node of the matches so far
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const ir::NodeId first{i};  // the match's first node; its other nodes depend on `first`, so they come later
    if (first <= last) continue;
    std::optional<FormMatch> match = find_native_form(form, example, graph, facts, ops, first);
    if (!match) continue;
    last = *std::max_element(match->nodes.begin(), match->nodes.end());
    matches.push_back(*std::move(match));
  }
  if (matches.empty()) return false;
  std::vector<bool> removed(graph.nodes.size(), false);
  for (FormMatch& match : matches) {
    for (const ir::NodeId node : match.nodes) removed[node.index()] = node != match.place;
    graph.nodes[match.place.index()] = std::move(match.fused);
  }
  graph = without_nodes(std::move(graph), removed);
  return true;
}

}  // namespace

PassResult fuse_native_forms(const ir::Graph& graph, const ir::OpTable& ops) {
  return fuse_native_forms(graph, ops, fused_forms());
}

PassResult fuse_native_forms(const ir::Graph& graph, const ir::OpTable& ops, std::span<const FusedForm> forms) {
  ir::Graph now = graph;
  bool changed = false;
  for (const FusedForm& form : forms) {
    const NativeForm example = TRY(NativeForm::create(form, ops));
    const auto begins = [&](const ir::Node& node) { return node.op == example.graph.nodes[0].op; };
    if (std::none_of(now.nodes.begin(), now.nodes.end(), begins)) continue;
    while (fuse_apart(form, example, ops, now)) changed = true;
  }
  if (!changed) return unchanged();
  return now;
}

}  // namespace tessera
