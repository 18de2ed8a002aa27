#include "tessera/runner/wanted_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/compile/passes/graph_facts.h"
#include "tessera/compile/passes/rewrite.h"
#include "tessera/ir/builder.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/rows/view.h"

namespace tessera {
namespace {

using ir::Symbol;
using ir::ValueId;
using ir::ValueKind;
using AttributeEntry = ir::Attributes::value_type;  // attributes are sorted by name

// Returns true if a row of the node's results certainly depends only on the same row of its operands. The operator must
// be capturable, must read no state, and must have no planner. Its kernel then does not know which rows belong to one
// sequence or to padding, so it must compute each row separately.
bool works_by_rows(const ir::Graph& graph, const ir::Node& node, const ir::OpTable& ops, const KernelTable& kernels) {
  const ir::OpDecl* decl = ops.find(node.op);
  const KernelDef* kernel = kernels.find(node.op);
  const bool reads_state =
      std::ranges::any_of(node.operands, [&](ValueId id) { return graph.value(id).kind == ValueKind::kState; });
  return decl != nullptr && decl->capturable && !reads_state && (kernel == nullptr || kernel->planner == nullptr);
}

// Returns the smallest index such that the node with this index and all later nodes work by rows. The index is above 0
// if the body has attention, because attention reads state.
std::size_t first_movable(const ir::Graph& body, const ir::OpTable& ops, const KernelTable& kernels) {
  std::size_t first = body.nodes.size();
  while (first > 0 && works_by_rows(body, body.nodes[first - 1], ops, kernels)) --first;
  return first;
}

// Returns whether the shape is [T, …] and all dimensions after T are constant.
bool is_rows_of_tokens(const ir::Type& type) {
  return !type.shape.empty() && type.shape[0] == ir::Dim(Symbol::kTokens) &&
         std::all_of(type.shape.begin() + 1, type.shape.end(),
                     [](const ir::Dim& d) { return d.constant().has_value(); });
}

bool is_slots(const ir::Value& value) {
  return value.kind == ValueKind::kInput && value.name.starts_with(input_names::kSlots);
}

// Returns the values that are made before node `first` and read by a moved node, in the order in which they are made.
// The moved nodes are node `first` and all nodes after it. Returns std::nullopt if such a value does not consist of
// whole rows, is a view of another value, or is written by a moved node. Also returns std::nullopt if a moved node
// reads an input other than slots.
std::optional<std::vector<ValueId>> handed_over(const ir::Graph& body, std::size_t first, const ir::OpTable& ops) {
  const GraphFacts facts(body, ops);
  const auto is_made_before = [&](ValueId id) {
    return body.value(id).kind == ValueKind::kResult && body.value(id).producer.index() < first;
  };
  std::vector<ValueId> values;
  for (std::size_t n = first; n < body.nodes.size(); ++n) {
    const ir::Node& node = body.nodes[n];
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId id = node.operands[i];
      const ir::Value& value = body.value(id);
      if (value.kind == ValueKind::kInput && !is_slots(value)) return std::nullopt;
      if (!is_made_before(id)) {
        if (node.mutates[i] && is_made_before(facts.memory(id))) return std::nullopt;
        continue;
      }
      if (node.mutates[i] || facts.memory(id) != id || value.type.shape.size() < 2 || !is_rows_of_tokens(value.type))
        return std::nullopt;
      values.push_back(id);
    }
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// Turns "T, 8, 64" into "R, 8, 64".
std::string of_wanted_rows(std::string_view shape) {
  const std::string from(ir::symbol_name(Symbol::kTokens));
  const std::string to(ir::symbol_name(Symbol::kRows));
  std::string text;
  for (std::size_t i = 0; i < shape.size();) {
    std::size_t end = i;
    while (end < shape.size() && (std::isalnum(static_cast<unsigned char>(shape[end])) != 0)) ++end;
    if (end == i) {
      text += shape[i++];
      continue;
    }
    const std::string_view word = shape.substr(i, end - i);
    text += word == from ? to : std::string(word);
    i = end;
  }
  return text;
}

ir::Attributes of_wanted_rows(ir::Attributes attributes) {
  for (auto& [name, value] : attributes)
    if (auto* text = std::get_if<std::string>(&value); text != nullptr && name == "shape")
      *text = of_wanted_rows(*text);
  return attributes;
}

// Builds the new head, which begins with the nodes that move from the body.
class WantedHead {
 public:
  WantedHead(const ir::Graph& body, const ir::Graph& head, const ir::OpTable& ops)
      : body_(body), head_(head), b_(head.name, ops) {
    wanted_ = b_.input(std::string(input_names::kWantedRows), {ir::DType::kInt32, {Symbol::kRows}});
  }

  // Adds an input for a value of the body, and gathers the wanted rows of this input. Rows with several dimensions are
  // flattened for the gather.
  void gather(ValueId from) {
    const ir::Value& value = body_.value(from);
    ir::Shape shape = value.type.shape;
    ValueId rows = b_.input(value.name, value.type);
    const bool is_flat = shape.size() == 2;
    if (!is_flat) {
      std::int64_t columns = 1;
      for (std::size_t d = 1; d < shape.size(); ++d) columns *= *shape[d].constant();
      rows = b_.op("reshape", {rows}, {{"shape", shape_text({shape[0], columns})}});
    }
    rows = b_.op("gather_rows", {rows, wanted_});
    shape[0] = Symbol::kRows;
    if (!is_flat) rows = b_.op("reshape", {rows}, {{"shape", shape_text(shape)}});
    of_body_.emplace(from, rows);
  }

  void take_body_node(const ir::Node& node) { copy(body_, node, of_body_, true); }

  // Appends the nodes of the old head, except its gather of `hidden`, because `hidden` has only wanted rows here.
  Result<ir::Graph> finish() {
    const ValueId hidden = of_body_.at(body_.outputs[0]);
    b_.output(hidden);
    std::map<ValueId, ValueId> of_head;
    for (const ir::Node& node : head_.nodes) {
      if (node.op == "gather_rows" && head_.value(node.operands[0]).name == kHidden) {
        of_head[node.results[0]] = hidden;
      } else {
        copy(head_, node, of_head, false);
      }
    }
    for (const ValueId output : head_.outputs) b_.output(of_head.at(output));
    ir::Graph graph = TRY(b_.finish());
    // Callers look the outputs up by name.
    for (const ValueId output : head_.outputs) rename(graph, of_head.at(output), head_.value(output));
    for (const auto& [from, to] : of_body_) rename(graph, to, body_.value(from));
    for (const auto& [from, to] : of_head)
      if (to != hidden) rename(graph, to, head_.value(from));
    return graph;
  }

  static constexpr std::string_view kHidden = "hidden";

 private:
  void copy(const ir::Graph& graph, const ir::Node& node, std::map<ValueId, ValueId>& placed, bool by_wanted_rows) {
    std::vector<ValueId> operands;
    for (const ValueId id : node.operands) operands.push_back(place(graph, id, placed));
    const std::vector<ValueId> results =
        b_.multi_op(node.op, std::move(operands), by_wanted_rows ? of_wanted_rows(node.attributes) : node.attributes);
    for (std::size_t i = 0; i < node.results.size(); ++i) placed[node.results[i]] = results[i];
  }

  ValueId place(const ir::Graph& graph, ValueId id, std::map<ValueId, ValueId>& placed) {
    if (const auto found = placed.find(id); found != placed.end()) return found->second;
    const ir::Value& value = graph.value(id);
    ValueId own = wanted_;
    if (value.kind == ValueKind::kWeight)
      own = b_.weight(value.name, value.type);
    else if (is_slots(value))
      own = marks();
    else if (value.name != input_names::kWantedRows)
      b_.fail(internal_error(fmt::format("the head reads %{}, which wanted rows do not have", value.name)));
    placed[id] = own;
    return own;
  }

  // Returns the input that marks padding rows. It replaces the slots of all cache groups, because moved nodes read
  // slots only to find the padding rows.
  ValueId marks() {
    if (!marks_) marks_ = b_.input(std::string(input_names::kRowMarks), {ir::DType::kInt32, {Symbol::kRows}});
    return *marks_;
  }

  // Gives a result the name of `like`, unless another value of the graph already has that name.
  static void rename(ir::Graph& graph, ValueId id, const ir::Value& like) {
    ir::Value& value = graph.value(id);
    if (value.kind == ValueKind::kResult && graph.find_value(like.name) == nullptr) value.name = like.name;
  }

  const ir::Graph& body_;
  const ir::Graph& head_;
  ir::GraphBuilder b_;
  ValueId wanted_;
  std::optional<ValueId> marks_;
  std::map<ValueId, ValueId> of_body_;  // maps each value of the body to its copy with wanted rows only
};

// Sets the wanted-rows attribute of the body's last node, if its operator declares it. No other node of the body reads
// the last node's results, so the last node may skip unwanted rows.
void tell_last_node(ir::Graph& body, const ir::OpTable& ops) {
  ir::Node& last = body.nodes.back();
  const ir::OpDecl* decl = ops.find(last.op);
  if (decl != nullptr &&
      std::ranges::find(decl->attributes, kWantedRowsOnly, &ir::AttributeDecl::name) != decl->attributes.end())
    last.attributes.insert(std::ranges::upper_bound(last.attributes, kWantedRowsOnly, {}, &AttributeEntry::first),
                           {std::string(kWantedRowsOnly), true});
}

}  // namespace

Result<std::optional<PrefillGraphs>> end_with_wanted_rows(const ir::Graph& body, const ir::Graph& head,
                                                          const ir::OpTable& ops, const KernelTable& kernels) {
  const std::optional<PrefillGraphs> none;
  const std::size_t first = first_movable(body, ops, kernels);
  if (first == 0 || first == body.nodes.size()) return none;
  const std::optional<std::vector<ValueId>> values = handed_over(body, first, ops);
  if (!values || values->empty()) return none;

  WantedHead wanted(body, head, ops);
  for (const ValueId id : *values) wanted.gather(id);
  for (std::size_t n = first; n < body.nodes.size(); ++n) wanted.take_body_node(body.nodes[n]);
  ir::Graph moved_head = TRY(wanted.finish());
  PrefillGraphs graphs{.body = body, .head = std::move(moved_head)};

  std::vector<bool> moved(body.nodes.size(), false);
  std::fill(moved.begin() + static_cast<std::ptrdiff_t>(first), moved.end(), true);
  graphs.body.outputs = *values;
  graphs.body = without_nodes(std::move(graphs.body), moved);
  tell_last_node(graphs.body, ops);
  return std::optional(std::move(graphs));
}

}  // namespace tessera
