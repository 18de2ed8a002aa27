#include "tessera/compile/fused/fusion_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/compile/passes/expand_native_forms.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

using Values = std::set<ir::ValueId>;

bool meet(const Values& a, const Values& b) {
  return std::any_of(a.begin(), a.end(), [&](ir::ValueId value) { return b.contains(value); });
}

// A single node or a group of nodes, with the memory that it reads and writes.
struct Item {
  std::vector<ir::NodeId> nodes{};
  bool fusible = false;
  Values reads{};
  Values writes{};
};

class Planner {
 public:
  Planner(ir::Graph graph, const ir::OpTable& ops)
      : ops_(ops),
        plan_{.graph = std::move(graph), .steps = {}},
        memory_(memory_of_values(plan_.graph, ops)),
        last_read_(plan_.graph.values.size(), 0),
        last_write_(plan_.graph.values.size(), 0) {}

  Result<FusionPlan> run() {
    for (std::size_t i = 0; i < plan_.graph.nodes.size(); ++i) {
      const ir::NodeId id{static_cast<std::int32_t>(i)};
      const ir::OpDecl* decl = TRY(ops_.get(plan_.graph.node(id).op));
      if (decl->execution == ir::Execution::kKernel) take(item_of(id));
    }
    count_readers();
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].nodes.size() == 1)
        plan_.steps.push_back({.node = items_[i].nodes[0]});
      else
        plan_.steps.push_back({.group = TRY(lower_group(plan_.graph, memory_, items_[i].nodes, read_by_others(i)))});
    }
    return std::move(plan_);
  }

 private:
  Item item_of(ir::NodeId id) const {
    const ir::Node& node = plan_.graph.node(id);
    Item item{.nodes = {id}};
    for (std::size_t k = 0; k < node.operands.size(); ++k) {
      const ir::ValueId root = memory_[node.operands[k].index()];
      item.reads.insert(root);
      if (node.mutates[k]) item.writes.insert(root);
    }
    for (const ir::ValueId result : node.results) item.writes.insert(memory_[result.index()]);
    item.fusible = can_fuse(item.nodes);
    return item;
  }

  // Returns whether one kernel can compute the nodes and store all of their results.
  bool can_fuse(const std::vector<ir::NodeId>& nodes) const {
    const std::vector<bool> all(plan_.graph.values.size(), true);
    return lower_group(plan_.graph, memory_, nodes, all).ok();
  }

  // Returns the index of the earliest item that the node could join without changing a result. In an earlier item, the
  // node would run too early: before an item that writes what the node reads, or that reads or writes what the node
  // writes.
  std::size_t first_possible(const Item& item) const {
    std::size_t from = 0;
    for (const ir::ValueId root : item.reads) from = std::max(from, last_write_[root.index()]);
    for (const ir::ValueId root : item.writes)
      from = std::max({from, last_write_[root.index()], last_read_[root.index()]});
    return from;
  }

  void take(Item item) {
    std::size_t at = item.fusible ? first_possible(item) : items_.size();
    while (at < items_.size() && !join(items_[at], item)) ++at;
    for (const ir::ValueId root : item.reads) last_read_[root.index()] = std::max(last_read_[root.index()], at);
    for (const ir::ValueId root : item.writes) last_write_[root.index()] = std::max(last_write_[root.index()], at);
    if (at == items_.size()) items_.push_back(std::move(item));
  }

  bool join(Item& group, const Item& item) const {
    if (!group.fusible || !(meet(group.writes, item.reads) || meet(group.reads, item.reads))) return false;
    if (writes_over(group, item)) return false;
    std::vector<ir::NodeId> nodes = group.nodes;
    nodes.push_back(item.nodes[0]);
    if (!can_fuse(nodes)) return false;
    group.nodes = std::move(nodes);
    group.reads.insert(item.reads.begin(), item.reads.end());
    group.writes.insert(item.writes.begin(), item.writes.end());
    return true;
  }
  // Returns whether the item writes memory that a member of the group reads or writes. If so, the item must not join
  // the group, because a block of the group's kernel might read rows that another block has overwritten.
  static bool writes_over(const Item& group, const Item& item) {
    return meet(group.reads, item.writes) || meet(group.writes, item.writes);
  }

  std::vector<bool> read_by_others(std::size_t item) const {
    std::vector<bool> read(plan_.graph.values.size(), false);
    for (const ir::ValueId root : items_[item].writes)
      read[root.index()] = readers_[root.index()] > (items_[item].reads.contains(root) ? 1 : 0);
    return read;
  }

  // Counts the items that read the memory of each value. An output gets two additional readers. read_by_others()
  // subtracts at most one reader, the item itself, so an output always has other readers and is stored.
  void count_readers() {
    readers_.assign(plan_.graph.values.size(), 0);
    for (const Item& item : items_)
      for (const ir::ValueId root : item.reads) ++readers_[root.index()];
    for (const ir::ValueId output : plan_.graph.outputs) readers_[memory_[output.index()].index()] += 2;
  }

  const ir::OpTable& ops_;
  FusionPlan plan_;
  std::vector<ir::ValueId> memory_;  // for each value, the value that owns its memory
  std::vector<Item> items_;          // in execution order
  // The next three vectors have an entry for each value that owns memory. The entries are, in this order: the index of
  // the last item that reads the memory, the index of the last item that writes it, and the number of items that read
  // it (count_readers()). An entry is 0 if there is no such item or reader.
  std::vector<std::size_t> last_read_;
  std::vector<std::size_t> last_write_;
  std::vector<int> readers_;
};

// Makes a graph that contains only `node`. Its operands become inputs, or states if the node writes them.
ir::Graph graph_of(const ir::Graph& graph, const ir::Node& node) {
  ir::Graph alone{.name = "alone"};
  std::map<ir::ValueId, ir::ValueId> to;
  const auto declare = [&](ir::ValueId id, ir::ValueKind kind) {
    const auto [known, is_new] = to.try_emplace(id, ir::ValueId(static_cast<std::int32_t>(alone.values.size())));
    if (is_new) alone.values.push_back({.name = graph.value(id).name, .type = graph.value(id).type, .kind = kind});
    return std::pair(known->second, is_new);
  };
  ir::Node only = node;
  for (std::size_t k = 0; k < node.operands.size(); ++k) {
    const bool written = node.mutates[k];
    const auto [id, is_new] = declare(node.operands[k], written ? ir::ValueKind::kState : ir::ValueKind::kInput);
    if (is_new) (written ? alone.states : alone.inputs).push_back(id);
    only.operands[k] = id;
  }
  for (ir::ValueId& result : only.results) {
    result = declare(result, ir::ValueKind::kResult).first;
    alone.value(result).producer = ir::NodeId(0);
  }
  alone.outputs = only.results;
  alone.nodes = {std::move(only)};
  return alone;
}

// Returns whether every operator of the node's native form (the node in terms of simpler operators) could be part of a
// fused group.
bool comes_back(const ir::Graph& graph, const ir::Node& node, const ir::OpTable& ops) {
  const Result<ir::Graph> expanded = expand_native_forms(graph_of(graph, node), ops);
  if (!expanded.ok()) return false;
  const std::vector<ir::ValueId> memory = memory_of_values(*expanded, ops);
  const std::vector<bool> all(expanded->values.size(), true);
  for (std::size_t i = 0; i < expanded->nodes.size(); ++i) {
    const ir::NodeId id{static_cast<std::int32_t>(i)};
    const ir::OpDecl* decl = ops.find(expanded->node(id).op);
    if (decl->execution == ir::Execution::kKernel && !lower_group(*expanded, memory, std::span(&id, 1), all).ok())
      return false;
  }
  return true;
}

// Caches the results of comes_back() by operator, attributes and types, because most layers of a model repeat them.
class Answers {
 public:
  explicit Answers(const ir::OpTable& ops) : ops_(ops) {}

  bool comes_back(const ir::Graph& graph, const ir::Node& node) {
    Known asked{.op = node.op, .attributes = node.attributes, .types = {}, .answer = false};
    for (const std::vector<ir::ValueId>* ids : {&node.operands, &node.results})
      for (const ir::ValueId id : *ids) asked.types.push_back(graph.value(id).type);
    for (const Known& known : known_)
      if (known.op == asked.op && known.attributes == asked.attributes && known.types == asked.types)
        return known.answer;
    asked.answer = tessera::comes_back(graph, node, ops_);
    known_.push_back(std::move(asked));
    return known_.back().answer;
  }

 private:
  struct Known {
    std::string op;
    std::vector<std::pair<std::string, ir::Attribute>> attributes;
    std::vector<ir::Type> types;  // types of operands and results
    bool answer;
  };
  const ir::OpTable& ops_;
  std::vector<Known> known_;
};

}  // namespace

Result<FusionPlan> plan_fusion(const ir::Graph& piece, const ir::OpTable& ops) {
  Answers answers(ops);
  ir::Graph expanded = TRY(expand_native_forms(
      piece, ops, [&](const ir::Graph& graph, const ir::Node& node) { return answers.comes_back(graph, node); }));
  return Planner(std::move(expanded), ops).run();
}

std::string to_text(const FusionPlan& plan) {
  std::string text;
  for (const FusionStep& step : plan.steps) {
    if (step.node != ir::kNoNode) {
      text += ir::to_text(plan.graph, plan.graph.node(step.node)) + "\n";
      continue;
    }
    ir::Node call{.op = step.group.name,
                  .operands = step.group.operands,
                  .mutates = step.group.mutates,
                  .results = step.group.results};
    text += ir::to_text(plan.graph, call) + "\n";
    const std::string kernel = to_text(step.group.kernel);
    std::size_t begin = 0;
    for (std::size_t end; (end = kernel.find('\n', begin)) != std::string::npos; begin = end + 1)
      text += "  " + kernel.substr(begin, end - begin) + "\n";
  }
  return text;
}

}  // namespace tessera
