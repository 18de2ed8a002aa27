#include "tessera/piecewise/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace tessera {
namespace {

class Chain {
 public:
  explicit Chain(std::string name) { graph_.name = std::move(name); }

  Status append(const ir::Graph& next) {
    std::vector<ir::ValueId> to;  // for each value of `next`, its value in the chain
    const auto base = static_cast<std::int32_t>(graph_.nodes.size());
    for (const ir::Value& value : next.values) to.push_back(TRY(place(value, base, next.name)));
    for (ir::Node node : next.nodes) {
      for (ir::ValueId& operand : node.operands) operand = to[operand.index()];
      for (ir::ValueId& result : node.results) result = to[result.index()];
      graph_.nodes.push_back(std::move(node));
    }
    for (const ir::ValueId output : next.outputs) {
      const ir::ValueId id = to[output.index()];
      graph_.outputs.push_back(id);
      linkable_.insert_or_assign(next.value(output).name, id);
    }
    for (const ir::CacheGroup& group : next.cache_groups) {
      if (std::find(graph_.cache_groups.begin(), graph_.cache_groups.end(), group) == graph_.cache_groups.end())
        graph_.cache_groups.push_back(group);
    }
    return ok_status();
  }

  ir::Graph take() { return std::move(graph_); }

 private:
  Result<ir::ValueId> place(const ir::Value& value, std::int32_t node_base, const std::string& source) {
    if (value.kind != ir::ValueKind::kResult) {
      if (const auto it = linkable_.find(value.name); it != linkable_.end()) {
        const ir::Type& have = graph_.value(it->second).type;
        if (have == value.type) return it->second;
        return invalid_argument(fmt::format("chaining {}: %{} has type {} in an earlier graph and type {} in {}",
                                            graph_.name, value.name, have.to_string(), value.type.to_string(), source));
      }
    }
    ir::Value copy = value;
    if (copy.kind == ir::ValueKind::kResult) {
      copy.producer = ir::NodeId(copy.producer.value() + node_base);
      copy.name = free_name(source + ".", copy.name);
    } else if (const auto taken = names_.find(copy.name); taken != names_.end()) {
      // Callers find inputs, weights and states by name, so these values keep their names. If an earlier result has the
      // same name, that earlier result gets another name.
      ir::Value& inner = graph_.value(taken->second);
      inner.name = free_name("inner.", inner.name);
      names_.emplace(inner.name, taken->second);
      names_.erase(copy.name);
    }
    const ir::ValueId id(static_cast<std::int32_t>(graph_.values.size()));
    if (copy.kind == ir::ValueKind::kInput) graph_.inputs.push_back(id);
    if (copy.kind == ir::ValueKind::kWeight) graph_.weights.push_back(id);
    if (copy.kind == ir::ValueKind::kState) graph_.states.push_back(id);
    if (copy.kind != ir::ValueKind::kResult) linkable_.emplace(copy.name, id);
    names_.emplace(copy.name, id);
    graph_.values.push_back(std::move(copy));
    return id;
  }

  // Puts `prefix` before `name` until the name is unique, and returns the result.
  std::string free_name(const std::string& prefix, std::string name) const {
    while (names_.contains(name)) name.insert(0, prefix);
    return name;
  }

  ir::Graph graph_;
  std::map<std::string, ir::ValueId> linkable_;  // values that a later graph finds by name
  std::unordered_map<std::string, ir::ValueId> names_;
};

}  // namespace

Result<ir::Graph> chain(std::string name, std::span<const ir::Graph* const> graphs) {
  Chain chained(std::move(name));
  for (const ir::Graph* graph : graphs) TRY(chained.append(*graph));
  return chained.take();
}

}  // namespace tessera
