#include "tessera/model/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/ops/collective/stage_exchange.h"
#include "tessera/ops/rows/view.h"

namespace tessera {
namespace {

using ir::ValueId;
using ir::ValueKind;

// Finds, for each value of a body, the last node that reads the value. Also finds the nodes that several stages may
// compute.
class BodyReads {
 public:
  BodyReads(const ir::Graph& body, const BodyCuts& cuts) : body_(body), last_use_(body.values.size(), -1) {
    std::vector<bool> written(body.values.size(), false);
    for (std::size_t n = 0; n < body.nodes.size(); ++n) {
      const ir::Node& node = body.nodes[n];
      for (std::size_t i = 0; i < node.operands.size(); ++i) {
        last_use_[node.operands[i].index()] = static_cast<std::ptrdiff_t>(n);
        if (node.mutates[i]) written[node.operands[i].index()] = true;
      }
    }
    for (const ValueId id : body.outputs) last_use_[id.index()] = std::ssize(body.nodes);
    for (const ir::Node& node : body.nodes) repeats_.push_back(is_repeated(node, written, cuts));
  }

  // Returns whether every stage that reads the node's results computes the node again. If not, the results are sent.
  bool repeats(std::size_t node) const { return repeats_[node]; }
  // Returns the values that must be sent if the body is cut before node `at`: values that are made before the cut and
  // read after it. They are in the order in which they are made.
  std::vector<ValueId> crossing(std::size_t at) const {
    std::vector<ValueId> values;
    for (std::size_t n = 0; n < at && at < body_.nodes.size(); ++n)
      for (const ValueId id : body_.nodes[n].results)
        if (!repeats_[n] && last_use_[id.index()] >= static_cast<std::ptrdiff_t>(at)) values.push_back(id);
    return values;
  }

 private:
  bool is_repeated(const ir::Node& node, const std::vector<bool>& written, const BodyCuts& cuts) const {
    const bool kept = std::ranges::none_of(node.results, [&](ValueId id) { return written[id.index()]; });
    return kept && std::ranges::find(node.mutates, true) == node.mutates.end() &&
           std::ranges::all_of(node.operands, [&](ValueId id) {
             const ir::Value& value = body_.value(id);
             switch (value.kind) {
               case ValueKind::kInput: return true;
               case ValueKind::kWeight: return cuts.is_constant(value.name);
               case ValueKind::kState: return false;
               case ValueKind::kResult: return static_cast<bool>(repeats_[value.producer.index()]);
             }
             return false;
           });
  }

  const ir::Graph& body_;
  // [values]: index of the last node that reads the value. For an output of the body, the number of nodes.
  std::vector<std::ptrdiff_t> last_use_;
  std::vector<bool> repeats_;  // [nodes]: the result of repeats() for each node
};

// Builds the graph of one stage.
class StageGraph {
 public:
  explicit StageGraph(const ir::Graph& body) : body_(body), to_(body.values.size()) {
    graph_.name = body.name;
    for (const ValueId id : body.inputs) place(id);
  }

  void copy_node(const ir::Node& node) {
    ir::Node copy = node;
    for (ValueId& operand : copy.operands) operand = place(operand);
    const ir::NodeId id(static_cast<std::int32_t>(graph_.nodes.size()));
    for (ValueId& result : copy.results) {
      result = place(result);
      graph_.value(result).producer = id;
    }
    graph_.nodes.push_back(std::move(copy));
  }

  Status receive(ValueId value) {
    const ir::Type& type = body_.value(value).type;
    const ir::NodeId id(static_cast<std::int32_t>(graph_.nodes.size()));
    const ValueId placed = place(value);
    graph_.value(placed).producer = id;
    graph_.nodes.push_back(
        {.op = std::string(kEmpty.name),
         .results = {placed},
         .attributes = {{"dtype", std::string(ir::dtype_name(type.dtype))}, {"shape", shape_text(type.shape)}}});
    return exchange(kReceiveFromPrevious, placed);
  }
  Status send(ValueId value) { return exchange(kSendToNext, place(value)); }

  ir::Graph finish(ValueId output, std::string name, const LayerRange& layers) {
    const ValueId placed = place(output);
    graph_.value(placed).name = std::move(name);
    graph_.outputs = {placed};
    graph_.cache_groups = body_.cache_groups;
    for (ir::CacheGroup& group : graph_.cache_groups)
      std::erase_if(group.layers, [&](std::int64_t layer) { return layer < layers.begin || layer >= layers.end; });
    return std::move(graph_);
  }

 private:
  ValueId place(ValueId from) {
    std::optional<ValueId>& placed = to_[from.index()];
    if (placed) return *placed;
    placed = ValueId(static_cast<std::int32_t>(graph_.values.size()));
    graph_.values.push_back(body_.value(from));
    switch (body_.value(from).kind) {
      case ValueKind::kInput: graph_.inputs.push_back(*placed); break;
      case ValueKind::kWeight: graph_.weights.push_back(*placed); break;
      case ValueKind::kState: graph_.states.push_back(*placed); break;
      case ValueKind::kResult: break;
    }
    return *placed;
  }
  Status exchange(const ir::OpDecl& decl, ValueId value) {
    ir::Node node{.op = std::string(decl.name), .operands = {value}, .mutates = {true}};
    TRY(ir::check_node(decl, graph_, node)
            .status()
            .with_context("a value between stages, %" + graph_.value(value).name));
    graph_.nodes.push_back(std::move(node));
    return ok_status();
  }

  const ir::Graph& body_;
  std::vector<std::optional<ValueId>> to_;  // [the body's values]: the same value in the stage's graph
  ir::Graph graph_;
};

// Checks that no state is used by a node in begin … end - 1 and also by a node outside of this range.
Status check_states(const ir::Graph& body, std::size_t begin, std::size_t end) {
  std::set<ValueId> inside;
  std::set<ValueId> outside;
  for (std::size_t n = 0; n < body.nodes.size(); ++n)
    for (const ValueId id : body.nodes[n].operands)
      if (body.value(id).kind == ValueKind::kState) (n >= begin && n < end ? inside : outside).insert(id);
  for (const ValueId id : inside)
    if (outside.contains(id))
      return unimplemented(fmt::format("layers of several stages read %{}; a cache is accepted that one stage reads",
                                       body.value(id).name));
  return ok_status();
}

}  // namespace

LayerRange layers_of_stage(std::int64_t layers, int stage, int stages) {
  return {.begin = layers * stage / stages, .end = layers * (stage + 1) / stages};
}

Result<ir::Graph> take_stage(const ir::Graph& body, const LayerRange& layers, const BodyCuts& cuts) {
  const bool is_last = layers.end == std::ssize(cuts.layer_starts);
  const std::size_t begin = layers.begin == 0 ? 0 : cuts.layer_starts[static_cast<std::size_t>(layers.begin)];
  const std::size_t end = is_last ? body.nodes.size() : cuts.layer_starts[static_cast<std::size_t>(layers.end)];
  TRY(check_states(body, begin, end));
  const BodyReads reads(body, cuts);
  const std::vector<ValueId> received = begin == 0 ? std::vector<ValueId>{} : reads.crossing(begin);
  const std::vector<ValueId> sent = reads.crossing(end);

  // Marks the nodes that the stage runs: its own nodes, and the earlier nodes whose results it needs and for which
  // reads.repeats() is true.
  std::vector<bool> runs(body.nodes.size(), false);
  for (std::size_t n = end; n-- > 0;) {
    runs[n] = runs[n] || n >= begin;
    if (!runs[n]) continue;
    for (const ValueId id : body.nodes[n].operands) {
      const ir::NodeId producer = body.value(id).producer;
      if (body.value(id).kind == ValueKind::kResult && reads.repeats(producer.index())) runs[producer.index()] = true;
    }
  }
  StageGraph stage(body);
  for (std::size_t n = 0; n < begin; ++n)
    if (runs[n]) stage.copy_node(body.nodes[n]);
  for (const ValueId id : received) TRY(stage.receive(id));
  for (std::size_t n = begin; n < end; ++n) stage.copy_node(body.nodes[n]);
  for (const ValueId id : sent) TRY(stage.send(id));

  const ir::Value& hidden = body.value(body.outputs[0]);
  const auto output =
      std::find_if(sent.rbegin(), sent.rend(), [&](ValueId id) { return body.value(id).type == hidden.type; });
  if (!is_last && output == sent.rend())
    return unimplemented(
        fmt::format("layer {} begins without a hidden state of type {}", layers.end, hidden.type.to_string()));
  return stage.finish(is_last ? body.outputs[0] : *output, hidden.name, layers);
}

}  // namespace tessera
