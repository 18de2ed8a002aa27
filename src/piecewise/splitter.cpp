#include "tessera/piecewise/splitter.h"

#include <fmt/format.h>

#include <set>
#include <string_view>
#include <unordered_map>

#include "tessera/piecewise/split_ops.h"

namespace tessera {
namespace {

// Copies nodes of the source graph into one part's graph.
class PartBuilder {
 public:
  PartBuilder(const ir::Graph& source, Part::Kind kind) : source_(source) { part_.kind = kind; }

  void add(const ir::Node& node) {
    ir::Node copy = node;
    const ir::NodeId id(static_cast<std::int32_t>(part_.graph.nodes.size()));
    for (ir::ValueId& operand : copy.operands) operand = local(operand, ir::kNoNode);
    for (ir::ValueId& result : copy.results) result = local(result, id);
    part_.graph.nodes.push_back(std::move(copy));
  }

  // Returns the part. `needed_later(value)` says whether another part reads the value or the forward returns it.
  template <class NeededLater>
  Part finish(std::string name, const NeededLater& needed_later) {
    ir::Graph& graph = part_.graph;
    graph.name = source_.name + "." + name;
    graph.cache_groups = source_.cache_groups;
    for (std::size_t i = 0; i < graph.values.size(); ++i) {
      const ir::ValueId id(static_cast<std::int32_t>(i));
      if (graph.value(id).kind == ir::ValueKind::kResult && needed_later(ir::ValueId(part_.slots[i])))
        graph.outputs.push_back(id);
    }
    part_.name = std::move(name);
    return std::move(part_);
  }

 private:
  // Returns the part's id for a value of the source graph. At the first use, adds the value to the part. `producer` is
  // the node of the part that makes the value, or kNoNode if no node of the part makes it.
  ir::ValueId local(ir::ValueId outer, ir::NodeId producer) {
    if (const auto it = local_.find(outer); it != local_.end()) return it->second;
    ir::Graph& graph = part_.graph;
    const ir::ValueId id(static_cast<std::int32_t>(graph.values.size()));
    ir::Value value = source_.value(outer);
    value.producer = producer;
    if (value.kind == ir::ValueKind::kResult && producer == ir::kNoNode)
      value.kind = ir::ValueKind::kInput;  // the value comes from another part
    if (value.kind == ir::ValueKind::kInput) graph.inputs.push_back(id);
    if (value.kind == ir::ValueKind::kWeight) graph.weights.push_back(id);
    if (value.kind == ir::ValueKind::kState) graph.states.push_back(id);
    graph.values.push_back(std::move(value));
    part_.slots.push_back(outer.value());
    local_.emplace(outer, id);
    return id;
  }

  const ir::Graph& source_;
  Part part_;
  std::unordered_map<ir::ValueId, ir::ValueId> local_;
};

// Returns for each value the index of the last node that has the value as an operand. The result is nodes.size() for an
// output of the graph, and 0 if no node has the value as an operand.
std::vector<std::size_t> last_uses(const ir::Graph& graph) {
  std::vector<std::size_t> last(graph.values.size(), 0);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ir::ValueId operand : graph.nodes[i].operands) last[operand.index()] = i;
  }
  for (const ir::ValueId output : graph.outputs) last[output.index()] = graph.nodes.size();
  return last;
}

// Returns for each node whether the forward is cut there. Sets stitched.capturable. If the forward is cut at an
// operator only because this operator cannot be captured, adds a note to `stitched`.
Result<std::vector<bool>> split_nodes(const ir::Graph& graph, const ir::OpTable& ops,
                                      const std::vector<std::string>& split_ops, StitchingGraph& stitched) {
  const std::set<std::string_view> wanted(split_ops.begin(), split_ops.end());
  std::set<std::string_view> noted;
  std::vector<bool> is_split;
  for (const ir::Node& node : graph.nodes) {
    const ir::OpDecl* decl = TRY(ops.get(node.op));
    is_split.push_back(wanted.contains(decl->name) || !decl->capturable);
    stitched.capturable = stitched.capturable && decl->capturable;
    if (wanted.contains(decl->name) || decl->capturable || !noted.insert(decl->name).second) continue;
    stitched.notes.push_back(
        fmt::format("operator {} cannot be captured: it runs between pieces, as a split op", decl->name));
  }
  return is_split;
}

}  // namespace

Result<StitchingGraph> split_graph(const ir::Graph& graph, const ir::OpTable& ops,
                                   std::span<const std::string> split_ops) {
  StitchingGraph stitched;
  stitched.name = graph.name;
  stitched.cache_groups = graph.cache_groups;
  for (const ir::Value& value : graph.values) stitched.slots.push_back({value.name, value.type, value.kind});
  for (const ir::ValueId output : graph.outputs) stitched.outputs.push_back(output.value());
  const std::vector<bool> is_split = TRY(split_nodes(graph, ops, TRY(resolve_split_ops(ops, split_ops)), stitched));

  const std::vector<std::size_t> last_use = last_uses(graph);
  std::size_t next = 0;
  while (next < graph.nodes.size()) {
    const bool split = is_split[next];
    PartBuilder part(graph, split ? Part::Kind::kSplitOp : Part::Kind::kPiece);
    const std::size_t first = next;
    do {
      part.add(graph.nodes[next++]);
    } while (!split && next < graph.nodes.size() && !is_split[next]);

    const std::size_t index = stitched.parts.size();
    std::string name =
        split ? fmt::format("split op {}: {}", index, graph.nodes[first].op) : fmt::format("piece {}", index);
    stitched.parts.push_back(
        part.finish(std::move(name), [&](ir::ValueId outer) { return last_use[outer.index()] >= next; }));
  }
  return stitched;
}

}  // namespace tessera
