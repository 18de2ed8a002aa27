#include "tessera/runner/adapters/adapted_graphs.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "tessera/ir/verify.h"
#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/adapters/adapter_lookup.h"
#include "tessera/ops/adapters/adapter_whole.h"
#include "tessera/ops/embedding/embedding.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/moe/adapter_experts.h"
#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/quantised/quantised_linear.h"

namespace tessera {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;
using ir::ValueKind;

// Copies a graph node by node. Adds adapter operators to the linears and the embedding that the layout names.
class Adapting {
 public:
  Adapting(const ir::Graph& graph, const AdapterLayout& layout, std::set<const AdaptableLinear*>& found)
      : from_(graph), layout_(layout), found_(found), to_(graph) {
    to_.nodes.clear();
  }

  ir::Graph finish() {
    for (const Node& node : from_.nodes) {
      const bool embeds = node.op == kEmbedding.name;
      const bool is_linear = node.op == kLinear.name || node.op == kQuantisedLinear.name;
      const AdaptableLinear* linear =
          is_linear || embeds ? layout_.find(to_.value(node.operands[1]).name, embeds) : nullptr;
      // The product of the input with the adapter's matrix A comes before the linear. The linear does not depend on
      // this product, so the linear can load its weights while the product runs.
      const ValueId shrunk = linear != nullptr && !embeds ? add_shrink(node.operands[0], *linear) : ValueId();
      add(node);
      if (node.op == kMoeExperts.name) add_experts(node);
      if (linear != nullptr) {
        found_.insert(linear);
        add_change(node.results[0], embeds ? add_lookup(node, *linear) : shrunk, *linear);
      }
      if (!is_linear && !embeds) continue;
      if (const AdaptableLinear* whole = layout_.find(to_.value(node.operands[1]).name, embeds, /*whole=*/true)) {
        found_.insert(whole);
        add_whole(node, *whole);
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
    return input(adapter_input(linear, table), adapter_type(layout_, linear, table));
  }

  // Returns the input that gives the slot of each row's adapter. `rows` is T (the number of tokens) if every token is a
  // row, and otherwise the number of rows that a head computes.
  ValueId table_of(const ir::Dim& rows) {
    const bool tokens = rows == ir::Dim(ir::Symbol::kTokens);
    return input(std::string(tokens ? input_names::kAdapterRows : input_names::kAdapterHeadRows),
                 {ir::DType::kInt32, {kAdapterRowLists, rows}});
  }

  ValueId shrunk(const ir::Dim& rows, const AdaptableLinear& linear) {
    const auto values = static_cast<std::int64_t>(linear.modules.size()) * layout_.limits().max_rank;
    return add_value({.name = linear.weight + (linear.embeds ? ".looked_up" : ".shrunk"),
                      .type = {ir::DType::kFloat32, {rows, ir::Dim(values)}}});
  }

  ValueId add_shrink(ValueId x, const AdaptableLinear& linear) {
    const ir::Dim rows = to_.value(x).type.shape[0];
    const ValueId t = shrunk(rows, linear);
    add({.op = std::string(kAdapterShrink.name),
         .operands = {x, table(linear, AdapterTable::kA), table(linear, AdapterTable::kRanks), table_of(rows)},
         .mutates = std::vector<bool>(4, false),
         .results = {t}});
    return t;
  }

  // Adds the operator that looks up a column of A for each id. It reads the ids that the embedding operator reads. It
  // skips rows that get an embedding from the prompt instead of an id.
  ValueId add_lookup(const Node& embedding, const AdaptableLinear& linear) {
    const ValueId ids = embedding.operands[0];
    const ir::Dim rows = to_.value(ids).type.shape[0];
    const ValueId t = shrunk(rows, linear);
    std::vector<ValueId> operands{ids, table(linear, AdapterTable::kA), table(linear, AdapterTable::kRanks),
                                  table_of(rows)};
    if (embedding.operands.size() > 2) operands.push_back(embedding.operands[2]);
    add({.op = std::string(kAdapterLookup.name),
         .operands = operands,
         .mutates = std::vector<bool>(operands.size(), false),
         .results = {t},
         .attributes = {{"first_row", linear.first_col}}});
    return t;
  }

  // Adds the operator that recomputes the experts' results for the rows whose adapter changes the experts' weights.
  void add_experts(const Node& experts) {
    const AdaptableLinear* const gate_up = layout_.find(to_.value(experts.operands[3]).name);
    const AdaptableLinear* const down = layout_.find(to_.value(experts.operands[4]).name);
    if (gate_up == nullptr || down == nullptr) return;
    found_.insert({gate_up, down});
    const ValueId y = experts.results[0];
    std::vector<ValueId> operands{y};
    operands.insert(operands.end(), experts.operands.begin(), experts.operands.begin() + 5);
    for (const AdaptableLinear* const stack : {gate_up, down})
      for (const AdapterTable of : {AdapterTable::kA, AdapterTable::kB, AdapterTable::kRanks, AdapterTable::kScales})
        operands.push_back(table(*stack, of));
    operands.push_back(table_of(to_.value(y).type.shape[0]));
    std::vector<bool> mutates(operands.size(), false);
    mutates[0] = true;
    Node node{.op = std::string(kAdapterExperts.name), .operands = std::move(operands), .mutates = std::move(mutates)};
    if (const ir::Attribute* activation = experts.find_attribute("activation"))
      node.attributes.emplace_back("activation", *activation);
    add(std::move(node));
  }

  void add_change(ValueId y, ValueId t, const AdaptableLinear& linear) {
    std::vector<std::int64_t> range_rows;
    std::vector<std::int64_t> modules;
    for (const AdaptableLinear::Columns& columns : linear.columns()) {
      range_rows.push_back(columns.count);
      modules.push_back(static_cast<std::int64_t>(columns.module));
    }
    add({.op = std::string(kAdapterAdd.name),
         .operands = {y, t, table(linear, AdapterTable::kB), table(linear, AdapterTable::kRanks),
                      table(linear, AdapterTable::kScales), table_of(to_.value(y).type.shape[0])},
         .mutates = {true, false, false, false, false, false},
         .attributes = {{"modules", modules}, {"rows", range_rows}}});
  }

  // Adds the operator that recomputes the result for each row with an adapter that replaces the whole matrix.
  void add_whole(const Node& node, const AdaptableLinear& linear) {
    const ValueId y = node.results[0];
    std::vector<ValueId> operands{y, node.operands[0], table(linear, AdapterTable::kA),
                                  table(linear, AdapterTable::kRanks), table_of(to_.value(y).type.shape[0])};
    if (linear.embeds && node.operands.size() > 2) operands.push_back(node.operands[2]);
    std::vector<bool> mutates(operands.size(), false);
    mutates[0] = true;
    Node whole{.op = std::string(linear.embeds ? kAdapterWholeEmbedding.name : kAdapterWholeLinear.name),
               .operands = std::move(operands),
               .mutates = std::move(mutates)};
    if (linear.embeds) whole.attributes.emplace_back("first_row", linear.first_col);
    add(std::move(whole));
  }

  const ir::Graph& from_;
  const AdapterLayout& layout_;
  std::set<const AdaptableLinear*>& found_;  // linears of the layout that were found in a graph
  ir::Graph to_;
};

Result<ir::Graph> adapt(const ir::Graph& graph, const AdapterLayout& layout, const ir::OpTable& ops,
                        std::set<const AdaptableLinear*>& found) {
  ir::Graph adapted = Adapting(graph, layout, found).finish();
  TRY(ir::verify(adapted, ops).with_context(fmt::format("{} with adapters", graph.name)));
  return adapted;
}

}  // namespace

std::string adapter_input(const AdaptableLinear& linear, AdapterTable table) {
  constexpr std::string_view kNames[] = {"a", "b", "ranks", "scales"};
  return fmt::format("adapters.{}{}{}.{}", linear.weight, linear.embeds ? ".embedding" : "",
                     linear.whole ? ".whole" : "", kNames[index_of(table)]);
}

std::span<const AdapterTable> adapter_tables(const AdaptableLinear& linear) {
  static constexpr AdapterTable kOfPairs[] = {AdapterTable::kA, AdapterTable::kB, AdapterTable::kRanks,
                                              AdapterTable::kScales};
  static constexpr AdapterTable kOfWhole[] = {AdapterTable::kA, AdapterTable::kRanks};
  return linear.whole ? std::span<const AdapterTable>(kOfWhole) : kOfPairs;
}

ir::Type adapter_type(const AdapterLayout& layout, const AdaptableLinear& linear, AdapterTable table) {
  const std::int64_t slots = layout.limits().slots;
  const std::int64_t rank = layout.rows_of_a(linear);
  const std::int64_t modules = std::ssize(linear.modules);
  switch (table) {
    case AdapterTable::kA:
      if (linear.whole && linear.embeds) return {layout.dtype(), {slots, linear.cols, rank}};
      return {layout.dtype(), {slots, modules * rank, linear.cols}};
    case AdapterTable::kB: return {layout.dtype(), {slots, rank, linear.rows()}};
    case AdapterTable::kRanks: return {ir::DType::kInt32, {slots, modules}};
    case AdapterTable::kScales: break;
  }
  return {ir::DType::kFloat32, {slots, modules}};
}

Result<AdaptedGraphs> adapt_graphs(const ModelGraphs& graphs, AdapterLayout layout, const ir::OpTable& ops) {
  std::set<const AdaptableLinear*> found;
  AdaptedGraphs adapted{.layout = std::move(layout), .body = {}, .head = {}, .prefill = {}};
  adapted.body = TRY(adapt(graphs.body, adapted.layout, ops, found));
  adapted.head = TRY(adapt(graphs.head, adapted.layout, ops, found));
  for (const AdaptableLinear& linear : adapted.layout.linears())
    if (!found.contains(&linear))
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
