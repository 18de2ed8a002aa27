#include "tessera/runner/adapters/adapted_graphs.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "tessera/ir/verify.h"
#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/quantised/quantised_linear.h"

namespace tessera {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;
using ir::ValueKind;

// Copies a graph node by node, and adds the operators around the layout's linears.
class Adapting {
 public:
  Adapting(const ir::Graph& graph, const AdapterLayout& layout, std::set<std::string>& found)
      : from_(graph), layout_(layout), found_(found), to_(graph) {
    to_.nodes.clear();
  }

  ir::Graph finish() {
    for (const Node& node : from_.nodes) {
      const bool is_linear = node.op == kLinear.name || node.op == kQuantisedLinear.name;
      const AdaptableLinear* linear = is_linear ? layout_.find(to_.value(node.operands[1]).name) : nullptr;
      if (linear != nullptr) {
        add_adapted(node, *linear);
      } else {
        add(node);
      }
    }
    return std::move(to_);
  }

 private:
  void add(Node node) {
    const NodeId id(static_cast<std::int32_t>(to_.nodes.size()));
    for (const ValueId result : node.results) to_.value(result).producer = id;
    to_.nodes.push_back(std::move(node));
  }

  ValueId add_value(Value value) {
    const ValueId id(static_cast<std::int32_t>(to_.values.size()));
    to_.values.push_back(std::move(value));
    return id;
  }

  ValueId input(std::string name, ir::Type type) {
    for (const ValueId id : to_.inputs)
      if (to_.value(id).name == name) return id;
    const ValueId id = add_value({.name = std::move(name), .type = std::move(type), .kind = ValueKind::kInput});
    to_.inputs.push_back(id);
    return id;
  }

  ValueId table(const AdaptableLinear& linear, AdapterTable table) {
    return input(adapter_input(linear.weight, table), adapter_type(layout_, linear, table));
  }

  // Returns the input with the table of rows of x: tokens, or the rows that a head computes.
  ValueId table_of(const ir::Dim& rows) {
    const bool tokens = rows == ir::Dim(ir::Symbol::kTokens);
    return input(std::string(tokens ? input_names::kAdapterRows : input_names::kAdapterHeadRows),
                 {ir::DType::kInt32, {kAdapterRowLists, rows}});
  }

  // Adds the linear between the operators that compute the adapters' change to it.
  void add_adapted(const Node& node, const AdaptableLinear& linear) {
    found_.insert(linear.weight);
    const ValueId x = node.operands[0];
    const ValueId y = node.results[0];
    const ir::Dim rows = to_.value(x).type.shape[0];
    const ValueId row_table = table_of(rows);
    const ValueId ranks = table(linear, AdapterTable::kRanks);
    const auto values = static_cast<std::int64_t>(linear.modules.size()) * layout_.limits().max_rank;
    const ValueId t =
        add_value({.name = linear.weight + ".shrunk", .type = {ir::DType::kFloat32, {rows, ir::Dim(values)}}});
    add({.op = std::string(kAdapterShrink.name),
         .operands = {x, table(linear, AdapterTable::kA), ranks, row_table},
         .mutates = std::vector<bool>(4, false),
         .results = {t}});
    add(node);
    std::vector<std::int64_t> range_rows;
    std::vector<std::int64_t> modules;
    for (const AdaptableLinear::Columns& columns : linear.columns()) {
      range_rows.push_back(columns.count);
      modules.push_back(static_cast<std::int64_t>(columns.module));
    }
    add({.op = std::string(kAdapterAdd.name),
         .operands = {y, t, table(linear, AdapterTable::kB), ranks, table(linear, AdapterTable::kScales), row_table},
         .mutates = {true, false, false, false, false, false},
         .attributes = {{"modules", modules}, {"rows", range_rows}}});
  }

  const ir::Graph& from_;
  const AdapterLayout& layout_;
  std::set<std::string>& found_;  // weights of the linears that were adapted
  ir::Graph to_;
};

Result<ir::Graph> adapt(const ir::Graph& graph, const AdapterLayout& layout, const ir::OpTable& ops,
                        std::set<std::string>& found) {
  ir::Graph adapted = Adapting(graph, layout, found).finish();
  TRY(ir::verify(adapted, ops).with_context(fmt::format("{} with adapters", graph.name)));
  return adapted;
}

}  // namespace

std::string adapter_input(std::string_view weight, AdapterTable table) {
  constexpr std::string_view kNames[] = {"a", "b", "ranks", "scales"};
  return fmt::format("adapters.{}.{}", weight, kNames[static_cast<std::size_t>(table)]);
}

ir::Type adapter_type(const AdapterLayout& layout, const AdaptableLinear& linear, AdapterTable table) {
  const std::int64_t slots = layout.limits().slots;
  const std::int64_t rank = layout.limits().max_rank;
  const std::int64_t modules = std::ssize(linear.modules);
  switch (table) {
    case AdapterTable::kA: return {layout.dtype(), {slots, modules * rank, linear.cols}};
    case AdapterTable::kB: return {layout.dtype(), {slots, rank, linear.rows()}};
    case AdapterTable::kRanks: return {ir::DType::kInt32, {slots, modules}};
    case AdapterTable::kScales: break;
  }
  return {ir::DType::kFloat32, {slots, modules}};
}

Result<AdaptedGraphs> adapt_graphs(const ModelGraphs& graphs, AdapterLayout layout, const ir::OpTable& ops) {
  std::set<std::string> found;
  AdaptedGraphs adapted{.layout = std::move(layout), .body = {}, .prefill = {}};
  adapted.body = TRY(adapt(graphs.body, adapted.layout, ops, found));
  for (const AdaptableLinear& linear : adapted.layout.linears())
    if (!found.contains(linear.weight))
      return unimplemented(fmt::format(
          "enable_lora: a pass has replaced the linear of \"{}\", and adapters cannot change it", linear.weight));
  if (!graphs.prefill) return adapted;
  PrefillGraphs prefill;
  prefill.body = TRY(adapt(graphs.prefill->body, adapted.layout, ops, found));
  prefill.head = TRY(adapt(graphs.prefill->head, adapted.layout, ops, found));
  adapted.prefill = std::move(prefill);
  return adapted;
}

}  // namespace tessera
