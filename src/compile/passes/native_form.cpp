#include "tessera/compile/passes/native_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/compile/passes/operators.h"

namespace tessera {
namespace {

constexpr ir::ValueId kNoValue{-1};

bool has_value(const std::vector<ir::ValueId>& values, ir::ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}
bool has_value(const std::vector<ir::NodeId>& nodes, ir::NodeId node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

void sort_by_name(ir::Attributes& attributes) {
  std::sort(attributes.begin(), attributes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
}

// A search for one match. It finds the nodes of the native form one after another, by following the results of the
// nodes that are already found.
class Search {
 public:
  Search(const FusedForm& form, const NativeForm& example, const ir::Graph& graph, const GraphFacts& facts,
         const ir::OpTable& ops)
      : form_(form),
        example_(example),
        graph_(graph),
        facts_(facts),
        ops_(ops),
        decl_(*ops.find(form.op)),
        values_(example.graph.values.size(), kNoValue) {}

  std::optional<FormMatch> from(ir::NodeId first) { return try_node(first); }

 private:
  // Tries node `id` as the next node of the native form. If its operands commute, tries both orders.
  std::optional<FormMatch> try_node(ir::NodeId id) {
    const ir::Node& wanted = example_.graph.nodes[nodes_.size()];
    const ir::Node& node = graph_.node(id);
    if (node.op != wanted.op || node.operands.size() != wanted.operands.size() ||
        node.results.size() != wanted.results.size() || has_value(nodes_, id))
      return std::nullopt;
    const std::vector<ir::ValueId> before = values_;
    for (const bool swapped : {false, true}) {
      if (swapped && !commutes(graph_, node)) break;
      std::vector<ir::ValueId> operands = node.operands;
      if (swapped) std::swap(operands[0], operands[1]);
      if (bind(wanted.operands, operands)) {
        for (std::size_t i = 0; i < node.results.size(); ++i) values_[wanted.results[i].index()] = node.results[i];
        nodes_.push_back(id);
        if (std::optional<FormMatch> match = next()) return match;
        nodes_.pop_back();
      }
      values_ = before;
    }
    return std::nullopt;
  }

  bool bind(const std::vector<ir::ValueId>& wanted, const std::vector<ir::ValueId>& operands) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ir::ValueId& bound = values_[wanted[i].index()];
      if (bound != kNoValue && bound != operands[i]) return false;
      bound = operands[i];
    }
    return true;
  }

  std::optional<FormMatch> next() {
    if (nodes_.size() == example_.graph.nodes.size()) return accept();
    for (const ir::ValueId operand : example_.graph.nodes[nodes_.size()].operands) {
      if (example_.graph.value(operand).kind != ir::ValueKind::kResult) continue;
      for (const ir::NodeId user : facts_.users(values_[operand.index()]))
        if (std::optional<FormMatch> match = try_node(user)) return match;
      break;
    }
    return std::nullopt;
  }

  // The search calls this function when the structure matches. Returns the match if it is exactly the native form and
  // may be replaced.
  std::optional<FormMatch> accept() const {
    std::vector<ir::ValueId> operands;
    for (const ir::ValueId operand : example_.operands) operands.push_back(values_[operand.index()]);
    // Every operand must be made outside of the match. For example, one form is a linear whose result is added to a
    // residual, which is an operand. If the linear makes %y, add(%y, %y) is no match, because the residual is then %y,
    // which is made inside.
    if (std::any_of(operands.begin(), operands.end(), [this](ir::ValueId operand) { return is_made_inside(operand); }))
      return std::nullopt;
    std::optional<ir::Node> fused = exact(operands);
    if (!fused) return std::nullopt;
    std::optional<std::vector<ir::NodeId>> own = own_nodes(*fused);
    if (!own) return std::nullopt;
    const std::optional<ir::NodeId> place = find_place(*own);
    if (!place) return std::nullopt;
    return FormMatch{*std::move(own), *place, *std::move(fused)};
  }

  bool is_made_inside(ir::ValueId value) const {
    const ir::NodeId producer = graph_.value(value).producer;
    return producer != ir::kNoNode && has_value(nodes_, producer);
  }

  // Returns the operator's node with these operands if the found nodes are exactly the operator's native form.
  std::optional<ir::Node> exact(const std::vector<ir::ValueId>& operands) const {
    std::vector<ir::Type> types;
    for (const ir::ValueId operand : operands) types.push_back(graph_.value(operand).type);
    const Result<NativeForm> real = NativeForm::create(
        decl_, form_.decompose != nullptr ? form_.decompose : decl_.decompose, types, gather_attributes(types), ops_);
    if (!real.ok() || real->graph.nodes.size() != nodes_.size()) return std::nullopt;

    std::vector<ir::ValueId> found(real->graph.values.size(), kNoValue);
    for (std::size_t i = 0; i < operands.size(); ++i) found[real->operands[i].index()] = operands[i];
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (!same_node(real->graph, real->graph.nodes[i], graph_.node(nodes_[i]), found)) return std::nullopt;

    ir::Node fused = real->node;
    fused.operands = operands;
    for (const ir::ValueId result : real->results) fused.results.push_back(found[result.index()]);
    return fused;
  }

  // Returns the operator's attributes. Booleans come from the form. Every other attribute comes from the first found
  // node that has an attribute of that name and kind, or from the form's `derive`.
  ir::Attributes gather_attributes(std::span<const ir::Type> types) const {
    ir::Attributes attributes;
    for (const ir::AttributeDecl& declared : decl_.attributes) {
      const ir::Attribute* fixed = example_.node.find_attribute(declared.name);
      if (fixed != nullptr && declared.kind == ir::AttributeKind::kBool) {
        attributes.emplace_back(declared.name, *fixed);
        continue;
      }
      for (const ir::NodeId id : nodes_) {
        const ir::Attribute* found = graph_.node(id).find_attribute(declared.name);
        if (found == nullptr || static_cast<ir::AttributeKind>(found->index()) != declared.kind) continue;
        attributes.emplace_back(declared.name, *found);
        break;
      }
    }
    if (form_.derive != nullptr) form_.derive(types, attributes);
    sort_by_name(attributes);
    return attributes;
  }

  // Returns whether `node` is the node `wanted` of the native form `real`. `found` maps values of `real` to values of
  // the graph. The call adds the node's results to this map.
  bool same_node(const ir::Graph& real, const ir::Node& wanted, const ir::Node& node,
                 std::vector<ir::ValueId>& found) const {
    if (wanted.op != node.op || wanted.operands.size() != node.operands.size() ||
        wanted.results.size() != node.results.size() || wanted.mutates != node.mutates)
      return false;
    std::vector<ir::ValueId> operands;
    for (const ir::ValueId operand : wanted.operands) operands.push_back(found[operand.index()]);
    if (operands != node.operands && commutes(graph_, node)) std::swap(operands[0], operands[1]);
    if (operands != node.operands) return false;
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      if (real.value(wanted.results[i]).type != graph_.value(node.results[i]).type) return false;
      found[wanted.results[i].index()] = node.results[i];
    }
    // A view's type determines what the view shows, so the view's attributes are not compared.
    return ops_.find(node.op)->execution == ir::Execution::kView || same_attributes(wanted, node);
  }

  // Returns the nodes of the match that the operator may replace. These are all nodes except views that nodes outside
  // of the match use too. Returns nothing if an outside node uses an inner value that is no view, or if any node writes
  // through a shared view.
  std::optional<std::vector<ir::NodeId>> own_nodes(const ir::Node& fused) const {
    std::vector<ir::NodeId> own;
    for (const ir::NodeId id : nodes_) {
      bool shared = false;
      for (const ir::ValueId result : graph_.node(id).results)
        shared = shared || (!has_value(fused.results, result) && is_used_outside(result));
      if (!shared) {
        own.push_back(id);
      } else if (facts_.execution(id) != ir::Execution::kView || !facts_.writes(graph_.node(id).results[0]).empty()) {
        return std::nullopt;
      }
    }
    return own;
  }

  bool is_used_outside(ir::ValueId value) const {
    if (facts_.is_output(value)) return true;
    const std::span<const ir::NodeId> users = facts_.users(value);
    return std::any_of(users.begin(), users.end(), [this](ir::NodeId user) { return !has_value(nodes_, user); });
  }

  // Returns the last place of the graph that is in `places` and to which all found nodes can move. After the move, the
  // nodes are in the native form's order. Returns nothing if there is no such place.
  std::optional<ir::NodeId> find_place(std::vector<ir::NodeId> places) const {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      for (std::size_t k = i + 1; k < nodes_.size(); ++k)
        if (nodes_[i] > nodes_[k] && facts_.depend(nodes_[i], nodes_[k])) return std::nullopt;
    std::sort(places.rbegin(), places.rend());
    const auto found = std::find_if(places.begin(), places.end(), [&](ir::NodeId place) {
      // A node that is not in `places` is a view that stays in the graph. It must come before the nodes that use it, so
      // it need not move if it is already before `place`.
      return std::all_of(nodes_.begin(), nodes_.end(), [&](ir::NodeId node) {
        return (node < place && !has_value(places, node)) || may_move(node, place);
      });
    });
    if (found == places.end()) return std::nullopt;
    return *found;
  }

  bool may_move(ir::NodeId node, ir::NodeId place) const {
    for (std::int32_t i = std::min(node, place).value() + 1; i < std::max(node, place).value(); ++i) {
      const ir::NodeId passed{i};
      if (!has_value(nodes_, passed) && facts_.depend(node, passed)) return false;
    }
    return true;
  }

  const FusedForm& form_;
  const NativeForm& example_;
  const ir::Graph& graph_;
  const GraphFacts& facts_;
  const ir::OpTable& ops_;
  const ir::OpDecl& decl_;
  // For each value of the native form, the matching value of graph_ if it is already known.
  std::vector<ir::ValueId> values_;
  std::vector<ir::NodeId> nodes_;  // the found nodes of the graph, in the native form's order
};

}  // namespace

Result<NativeForm> NativeForm::create(const ir::OpDecl& decl, const Decompose& decompose,
                                      std::span<const ir::Type> operands, ir::Attributes attributes,
                                      const ir::OpTable& ops) {
  NativeForm form;
  ir::GraphBuilder b("native form", ops);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool written = i < decl.operands.size() && decl.operands[i].mutated;
    const std::string name = fmt::format("{}", i);
    form.operands.push_back(written ? b.state(name, operands[i]) : b.input(name, operands[i]));
    form.node.mutates.push_back(written);
  }
  sort_by_name(attributes);
  form.node.op = decl.name;
  form.node.operands = form.operands;
  form.node.attributes = std::move(attributes);
  const std::vector<ir::Type> types = TRY(ir::check_node(decl, b.graph(), form.node));
  form.results = TRY(decompose(b, form.node, form.operands));
  form.graph = TRY(b.finish());
  const auto has_type = [&](ir::ValueId result, const ir::Type& type) { return form.graph.value(result).type == type; };
  if (!std::equal(form.results.begin(), form.results.end(), types.begin(), types.end(), has_type))
    return internal_error(fmt::format("the results of {} and of its native form differ in type", decl.name));
  return form;
}

Result<NativeForm> NativeForm::create(const FusedForm& form, const ir::OpTable& ops) {
  const ir::OpDecl* decl = TRY(ops.get(form.op));
  const Decompose& decompose = form.decompose != nullptr ? form.decompose : decl->decompose;
  if (decompose == nullptr) return internal_error(fmt::format("{} declares no native form", form.op));
  NativeForm example = TRY(create(*decl, decompose, form.operands, form.attributes, ops));
  if (example.graph.nodes.empty()) return internal_error(fmt::format("{}: its native form has no nodes", form.op));
  for (std::size_t i = 0; i < example.operands.size(); ++i) {
    if (std::none_of(example.graph.nodes.begin(), example.graph.nodes.end(),
                     [&](const ir::Node& node) { return has_value(node.operands, example.operands[i]); }))
      return internal_error(fmt::format("{}: its native form does not use operand {}", form.op, i));
  }
  for (std::size_t i = 1; i < example.graph.nodes.size(); ++i) {
    const ir::Node& node = example.graph.nodes[i];
    if (std::none_of(node.operands.begin(), node.operands.end(),
                     [&](ir::ValueId operand) { return example.graph.value(operand).kind == ir::ValueKind::kResult; }))
      return internal_error(
          fmt::format("{}: node {} of its native form, {}, takes nothing from those before it", form.op, i, node.op));
  }
  return example;
}

std::optional<FormMatch> find_native_form(const FusedForm& form, const NativeForm& example, const ir::Graph& graph,
                                          const GraphFacts& facts, const ir::OpTable& ops, ir::NodeId first) {
  return Search(form, example, graph, facts, ops).from(first);
}

}  // namespace tessera
