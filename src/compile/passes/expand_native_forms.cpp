#include "tessera/compile/passes/expand_native_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include "tessera/ir/builder.h"

namespace tessera {
namespace {

// Rewrites `graph`. Replaces an operator with its native form if it has one and if `expands` accepts the operator.
class Expansion {
 public:
  Expansion(const ir::Graph& graph, const ir::OpTable& ops, const ExpandsNode& expands)
      : graph_(graph),
        ops_(ops),
        expands_(expands),
        builder_(graph.name, ops),
        written_(graph.values.size(), ir::ValueId{-1}) {}

  Result<ir::Graph> run() {
    declare();
    for (const ir::Node& node : graph_.nodes) TRY(write(node));
    for (const ir::ValueId output : graph_.outputs) builder_.output(written_[output.index()]);
    ir::Graph expanded = TRY(builder_.finish());
    name_values(expanded);
    return expanded;
  }

 private:
  void declare() {
    for (const ir::CacheGroup& group : graph_.cache_groups) builder_.cache_group(group);
    for (const ir::ValueId id : graph_.inputs) written_[id.index()] = builder_.input(name(id), graph_.value(id).type);
    for (const ir::ValueId id : graph_.weights) written_[id.index()] = builder_.weight(name(id), graph_.value(id).type);
    for (const ir::ValueId id : graph_.states) written_[id.index()] = builder_.state(name(id), graph_.value(id).type);
  }

  Status write(const ir::Node& node) {
    const ir::OpDecl* decl = TRY(ops_.get(node.op));
    std::vector<ir::ValueId> operands;
    for (const ir::ValueId operand : node.operands) operands.push_back(written_[operand.index()]);
    builder_.scope(node.results.empty() ? node.op : name(node.results[0]));
    std::vector<ir::ValueId> results;
    if (decl->decompose != nullptr && expands_(graph_, node))
      results = TRY(decl->decompose(builder_, node, operands));
    else
      results = builder_.multi_op(node.op, operands, node.attributes);
    if (builder_.ok() && results.size() != node.results.size())
      builder_.fail(internal_error(
          fmt::format("{} has {} results and its native form {}", node.op, node.results.size(), results.size())));
    for (std::size_t i = 0; i < node.results.size() && builder_.ok(); ++i)
      written_[node.results[i].index()] = results[i];
    return ok_status();
  }

  // Gives values their final names. Values of the graph get their old names again, and new values keep the names from
  // the builder. If a name is already taken, a number is added to the name of the new value.
  void name_values(ir::Graph& expanded) const {
    std::vector<bool> known(expanded.values.size(), false);
    std::unordered_set<std::string> names;
    for (std::size_t i = 0; i < written_.size(); ++i) {
      expanded.value(written_[i]).name = graph_.values[i].name;
      known[written_[i].index()] = true;
      names.insert(graph_.values[i].name);
    }
    for (std::size_t i = 0; i < expanded.values.size(); ++i) {
      if (known[i]) continue;
      const std::string base = expanded.values[i].name;
      for (int number = 1; !names.insert(expanded.values[i].name).second; ++number)
        expanded.values[i].name = fmt::format("{}.{}", base, number);
    }
  }

  const std::string& name(ir::ValueId id) const { return graph_.value(id).name; }

  const ir::Graph& graph_;
  const ir::OpTable& ops_;
  const ExpandsNode& expands_;
  ir::GraphBuilder builder_;
  std::vector<ir::ValueId> written_;  // for each value of graph_, the builder's value
};

}  // namespace

Result<ir::Graph> expand_native_forms(const ir::Graph& graph, const ir::OpTable& ops, const ExpandsNode& expands) {
  const ExpandsNode wanted = expands ? expands : [](const ir::Graph&, const ir::Node&) { return true; };
  ir::Graph expanded = graph;
  const auto has_native_form = [&](const ir::Node& node) {
    const ir::OpDecl* decl = ops.find(node.op);
    return decl != nullptr && decl->decompose != nullptr && wanted(expanded, node);
  };
  while (std::any_of(expanded.nodes.begin(), expanded.nodes.end(), has_native_form))
    expanded = TRY(Expansion(expanded, ops, wanted).run());
  return expanded;
}

}  // namespace tessera
