#include "tessera/ir/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tessera/ir/builder.h"

namespace tessera::ir {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, const OpTable& ops) : graph_(graph), ops_(ops) {}

  Status verify() {
    TRY(check_values());
    TRY(check_lists());
    TRY(check_groups());
    TRY(check_producers());
    memory_.resize(graph_.values.size());
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = ValueId{static_cast<std::int32_t>(i)};
    unwritten_.assign(graph_.values.size(), false);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      Status status = check_node_at(NodeId{static_cast<std::int32_t>(i)});
      if (!status.ok()) return std::move(status).with_context(fmt::format("node {} ({})", i, graph_.nodes[i].op));
    }
    return check_outputs();
  }

 private:
  template <class... Args>
  static Status broken(fmt::format_string<Args...> format, Args&&... args) {
    return internal_error(fmt::format(format, std::forward<Args>(args)...));
  }
  bool exists(ValueId id) const { return id.value() >= 0 && id.index() < graph_.values.size(); }
  const std::string& name(ValueId id) const { return graph_.value(id).name; }

  Status check_values() const {
    std::unordered_set<std::string_view> names;
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.name.empty()) return broken("value {} has no name", i);
      if (!names.insert(value.name).second) return broken("value {}: the name %{} is taken", i, value.name);
      for (const Dim& dim : value.type.shape) {
        const std::optional<std::int64_t> constant = dim.constant();
        if (!dim.representable() || (constant && *constant < 0)) {
          return broken("%{}: {} is no dimension, in type {}", value.name, dim.to_string(), value.type.to_string());
        }
      }
    }
    return ok_status();
  }

  // Checks that inputs, weights and states are listed once, in the list of their kind.
  Status check_lists() const {
    std::vector<bool> listed(graph_.values.size(), false);
    const auto check_list = [&](const std::vector<ValueId>& list, ValueKind kind) -> Status {
      for (const ValueId id : list) {
        if (!exists(id))
          return broken("the list of {}s names value {}, which does not exist", value_kind_name(kind), id.value());
        const Value& value = graph_.value(id);
        if (value.kind != kind) {
          return broken("%{} is of kind {} and in the list of {}s", value.name, value_kind_name(value.kind),
                        value_kind_name(kind));
        }
        if (listed[id.index()]) return broken("%{} is twice in the list of {}s", value.name, value_kind_name(kind));
        listed[id.index()] = true;
      }
      return ok_status();
    };
    TRY(check_list(graph_.inputs, ValueKind::kInput));
    TRY(check_list(graph_.weights, ValueKind::kWeight));
    TRY(check_list(graph_.states, ValueKind::kState));
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.kind != ValueKind::kResult && !listed[i]) {
        return broken("%{} is of kind {} and not in the list of {}s", value.name, value_kind_name(value.kind),
                      value_kind_name(value.kind));
      }
    }
    return ok_status();
  }

  Status check_groups() const {
    if (graph_.cache_groups.size() > kMaxCacheGroups)
      return broken("{} cache groups; at most {} are accepted", graph_.cache_groups.size(), kMaxCacheGroups);
    TRY(check_group_states());
    std::set<std::string_view> names;
    std::set<std::int64_t> layers;
    for (const CacheGroup& group : graph_.cache_groups) {
      const bool windowed = group.kind == CacheGroup::Kind::kWindow;
      if (!names.insert(group.name).second) return broken("two cache groups are named \"{}\"", group.name);
      if (windowed != (group.window > 0) || group.window < 0) {
        return broken("cache group \"{}\" of kind {} has a window of {}", group.name, cache_group_kind_name(group.kind),
                      group.window);
      }
      for (const std::int64_t layer : group.layers) {
        if (layer < 0 || !layers.insert(layer).second) {
          return broken("cache group \"{}\": layer {} is {}", group.name, layer,
                        layer < 0 ? "negative" : "in a group already");
        }
      }
    }
    return ok_status();
  }

  // Checks that at most one dimension of a state is a number of pages, that this is the first dimension, and that this
  // number belongs to an existing group.
  Status check_group_states() const {
    for (const ValueId id : graph_.states) {
      const Type& type = graph_.value(id).type;
      std::size_t symbols = 0;
      for (std::size_t group = 0; group < kMaxCacheGroups; ++group)
        symbols += static_cast<std::size_t>(std::count_if(
            type.shape.begin(), type.shape.end(), [&](const Dim& dim) { return dim.uses(page_symbol(group)); }));
      const std::optional<std::size_t> group = cache_group_of(type);
      if (symbols > 1 || (symbols == 1 && !group))
        return broken("%{} is {}; pages of one cache group are accepted as its first dimension", name(id),
                      type.to_string());
      if (group && !graph_.cache_groups.empty() && *group >= graph_.cache_groups.size())
        return broken("%{} is {}, of cache group {}; the graph has {}", name(id), type.to_string(), *group,
                      graph_.cache_groups.size());
    }
    return ok_status();
  }

  // Checks that exactly one node makes each result, and that the result names this node as its producer.
  Status check_producers() const {
    std::vector<bool> made(graph_.values.size(), false);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      for (const ValueId id : node.results) {
        if (!exists(id)) return broken("node {} ({}): result {} does not exist", n, node.op, id.value());
        const Value& value = graph_.value(id);
        if (value.kind != ValueKind::kResult) {
          return broken("node {} ({}): its result %{} is of kind {}", n, node.op, value.name,
                        value_kind_name(value.kind));
        }
        if (made[id.index()]) return broken("node {} ({}): its result %{} is made twice", n, node.op, value.name);
        if (value.producer != NodeId{static_cast<std::int32_t>(n)}) {
          return broken("node {} ({}): its result %{} names node {} as its producer", n, node.op, value.name,
                        value.producer.value());
        }
        made[id.index()] = true;
      }
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.kind == ValueKind::kResult && !made[i]) return broken("%{} is a result that no node makes", value.name);
      if (value.kind != ValueKind::kResult && value.producer != kNoNode) {
        return broken("%{} is of kind {} and names node {} as its producer", value.name, value_kind_name(value.kind),
                      value.producer.value());
      }
    }
    return ok_status();
  }

  Status check_node_at(NodeId id) {
    const Node& node = graph_.node(id);
    const OpDecl& decl = *TRY(ops_.get(node.op));
    for (const ValueId operand : node.operands) {
      if (exists(operand) && graph_.value(operand).producer >= id) {
        return broken("its operand %{} is made later, by node {}", name(operand),
                      graph_.value(operand).producer.value());
      }
    }
    const std::vector<Type> types = TRY(check_node(decl, graph_, node));
    if (types.size() != node.results.size())
      return broken("it has {} results instead of {}", node.results.size(), types.size());
    for (std::size_t i = 0; i < types.size(); ++i) {
      const Value& result = graph_.value(node.results[i]);
      if (result.type != types[i]) {
        return broken("its result %{} is {} instead of {}", result.name, result.type.to_string(), types[i].to_string());
      }
    }
    TRY(check_splitting(decl));
    TRY(check_group_attribute(node));
    return check_memory(decl, node);
  }

  static Status check_splitting(const OpDecl& decl) {
    if (decl.split_by_default && decl.execution != Execution::kKernel)
      return broken("the operator is split by default and runs nothing");
    return ok_status();
  }

  Status check_group_attribute(const Node& node) const {
    const Attribute* attribute = node.find_attribute("group");
    const std::int64_t* index = attribute != nullptr ? std::get_if<std::int64_t>(attribute) : nullptr;
    const bool has_state = std::any_of(node.operands.begin(), node.operands.end(),
                                       [&](ValueId id) { return graph_.value(id).kind == ValueKind::kState; });
    if (index == nullptr || !has_state) return ok_status();
    if (*index < 0 || static_cast<std::size_t>(*index) >= graph_.cache_groups.size())
      return broken("its attribute 'group' is {}; the graph has {} cache groups", *index, graph_.cache_groups.size());
    for (const ValueId id : node.operands) {
      const std::optional<std::size_t> group = cache_group_of(graph_.value(id).type);
      if (graph_.value(id).kind == ValueKind::kState && group && *group != static_cast<std::size_t>(*index))
        return broken("its attribute 'group' is {}, and %{} is of cache group {}", *index, name(id), *group);
    }
    return ok_status();
  }

  Status check_memory(const OpDecl& decl, const Node& node) {
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      if (node.mutates[i]) TRY(check_write(node, i));
    }
    if (decl.execution == Execution::kView) return check_view(node);
    const bool allocates = decl.execution == Execution::kAllocate;
    for (std::size_t i = 0; i < node.operands.size() && !allocates; ++i) {
      const ValueId memory = memory_[node.operands[i].index()];
      if (unwritten_[memory.index()] && !node.mutates[i]) {
        return broken("it reads %{}, whose memory nothing has written yet", name(node.operands[i]));
      }
    }
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      if (node.mutates[i]) unwritten_[memory_[node.operands[i].index()].index()] = false;
    }
    for (const ValueId result : node.results) unwritten_[result.index()] = allocates;
    return ok_status();
  }

  Status check_write(const Node& node, std::size_t written) const {
    const ValueId memory = memory_[node.operands[written].index()];
    const ValueKind kind = graph_.value(memory).kind;
    if (kind == ValueKind::kInput || kind == ValueKind::kWeight) {
      return broken("it writes %{}, a view of the {} %{}", name(node.operands[written]), value_kind_name(kind),
                    name(memory));
    }
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      if (i == written || memory_[node.operands[i].index()] != memory) continue;
      return broken("it writes %{}, whose memory is also its operand {}, %{}", name(node.operands[written]), i,
                    name(node.operands[i]));
    }
    return ok_status();
  }

  Status check_view(const Node& node) {
    const bool writes = std::find(node.mutates.begin(), node.mutates.end(), true) != node.mutates.end();
    if (node.results.size() != 1 || node.operands.empty() || writes) {
      return broken("a view has one result, of its first operand, and writes nothing");
    }
    const Value& of = graph_.value(node.operands[0]);
    const Value& view = graph_.value(node.results[0]);
    if (of.type.dtype != view.type.dtype || !same_element_count(of.type.shape, view.type.shape)) {
      return broken("%{} is {}, no view of %{}, which is {}", view.name, view.type.to_string(), of.name,
                    of.type.to_string());
    }
    memory_[node.results[0].index()] = memory_[node.operands[0].index()];
    return ok_status();
  }

  Status check_outputs() const {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i];
      if (!exists(id)) return broken("output {} is value {}, which does not exist", i, id.value());
      const ValueId memory = memory_[id.index()];
      if (graph_.value(memory).kind == ValueKind::kWeight)
        return broken("output {}, %{}, is the weight %{}", i, name(id), name(memory));
      if (unwritten_[memory.index()]) return broken("output {}, %{}, is memory that nothing has written", i, name(id));
    }
    return ok_status();
  }

  const Graph& graph_;
  const OpTable& ops_;
  std::vector<ValueId> memory_;  // for each value, the value that owns its memory (itself, except for views)
  std::vector<bool> unwritten_;  // for each value, whether it is allocated and not yet written
};

}  // namespace

Status verify(const Graph& graph, const OpTable& ops) {
  return Verifier(graph, ops).verify().with_context(fmt::format("graph '{}'", graph.name));
}

}  // namespace tessera::ir
