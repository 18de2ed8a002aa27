#include "tessera/ir/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "tessera/base/nearest.h"

namespace tessera::ir {
namespace {

bool in_range(const Graph& graph, ValueId id) { return id.value() >= 0 && id.index() < graph.values.size(); }

AttributeKind kind_of(const Attribute& attribute) { return static_cast<AttributeKind>(attribute.index()); }

Status check_attribute(const OpDecl& decl, const std::pair<std::string, Attribute>& attribute) {
  const auto& [name, value] = attribute;
  const auto declared = std::find_if(decl.attributes.begin(), decl.attributes.end(),
                                     [&](const AttributeDecl& a) { return a.name == name; });
  if (declared == decl.attributes.end()) {
    std::vector<std::string_view> names;
    for (const AttributeDecl& a : decl.attributes) names.push_back(a.name);
    if (names.empty()) return invalid_argument(fmt::format("attribute '{}' is unknown: the operator has none", name));
    return invalid_argument(fmt::format("attribute '{}' is unknown; declared: {}", name, fmt::join(names, ", ")));
  }
  if (declared->kind != kind_of(value)) {
    return invalid_argument(fmt::format("attribute '{}' is of kind {}; declared: {}", name,
                                        attribute_kind_name(kind_of(value)), attribute_kind_name(declared->kind)));
  }
  return ok_status();
}

Status check_attributes(const OpDecl& decl, const Node& node) {
  for (std::size_t i = 0; i < node.attributes.size(); ++i) {
    TRY(check_attribute(decl, node.attributes[i]));
    if (i == 0) continue;
    const std::string& before = node.attributes[i - 1].first;
    const std::string& name = node.attributes[i].first;
    if (before == name) return invalid_argument(fmt::format("attribute '{}' is given twice", name));
    if (before > name) {
      return invalid_argument(fmt::format("attributes '{}' and '{}' are not sorted by name", before, name));
    }
  }
  for (const AttributeDecl& a : decl.attributes) {
    if (a.required && node.find_attribute(a.name) == nullptr) {
      return invalid_argument(fmt::format("attribute '{}' is required and absent", a.name));
    }
  }
  return ok_status();
}

Status check_operand_count(const OpDecl& decl, std::size_t count) {
  std::vector<std::string> names;
  std::size_t required = 0;
  for (const OperandDecl& operand : decl.operands) {
    names.push_back(fmt::format("{}{}", operand.name, operand.optional ? "?" : ""));
    if (!operand.optional) ++required;
  }
  if (count >= required && count <= decl.operands.size()) return ok_status();
  return invalid_argument(fmt::format("{} operands; declared: ({})", count, fmt::join(names, ", ")));
}

Status check_operand(const OperandDecl& declared, const Graph& graph, ValueId id, bool mutated) {
  if (!in_range(graph, id)) {
    return invalid_argument(fmt::format("operand '{}' is value {}, which does not exist: the graph has {}",
                                        declared.name, id.value(), graph.values.size()));
  }
  const Value& value = graph.value(id);
  if (mutated != declared.mutated) {
    return invalid_argument(fmt::format("operand '{}' (%{}) is {} here and {} in the declaration", declared.name,
                                        value.name, mutated ? "mutated" : "only read",
                                        declared.mutated ? "mutated" : "only read"));
  }
  if (mutated && (value.kind == ValueKind::kWeight || value.kind == ValueKind::kInput)) {
    return invalid_argument(fmt::format("operand '{}' is mutated and %{} is of kind {}; states and results can be",
                                        declared.name, value.name, value_kind_name(value.kind)));
  }
  return ok_status();
}

}  // namespace

Result<std::vector<Type>> check_node(const OpDecl& decl, const Graph& graph, const Node& node) {
  TRY(check_operand_count(decl, node.operands.size()));
  if (node.mutates.size() != node.operands.size()) {
    return internal_error(fmt::format("{} mutation flags for {} operands", node.mutates.size(), node.operands.size()));
  }
  std::vector<Type> types;
  types.reserve(node.operands.size());
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    TRY(check_operand(decl.operands[i], graph, node.operands[i], node.mutates[i]));
    types.push_back(graph.value(node.operands[i]).type);
  }
  TRY(check_attributes(decl, node));
  if (decl.infer == nullptr) return internal_error("the operator is declared without a shape rule");
  std::vector<Type> results = TRY(decl.infer({types, node}));
  if (results.size() > kMaxResults) {
    return internal_error(fmt::format("the shape rule gives {} results; {} are accepted", results.size(), kMaxResults));
  }
  return results;
}

GraphBuilder::GraphBuilder(std::string graph_name, const OpTable& ops) : ops_(ops) {
  graph_.name = std::move(graph_name);
}

const Type& GraphBuilder::type(ValueId value) const {
  static const Type kScalar;
  assert((!ok() || in_range(graph_, value)) && "the value is not of this graph");
  return in_range(graph_, value) ? graph_.value(value).type : kScalar;
}

void GraphBuilder::fail(Status status) {
  assert(!status.ok());
  if (ok()) error_ = std::move(status);
}

ValueId GraphBuilder::add_value(std::string name, Type type, ValueKind kind) {
  const ValueId id{static_cast<std::int32_t>(graph_.values.size())};
  values_by_name_.emplace(name, id);
  graph_.values.push_back({std::move(name), std::move(type), kind, kNoNode});
  return id;
}

ValueId GraphBuilder::declare(std::string name, Type type, ValueKind kind) {
  if (!ok()) return ValueId{-1};
  const auto found = values_by_name_.find(name);
  if (found == values_by_name_.end()) return add_value(std::move(name), std::move(type), kind);

  const Value& first = graph_.value(found->second);
  if (kind != ValueKind::kWeight || first.kind != kind) {
    fail(invalid_argument(fmt::format("{} '{}': the name is taken by a value of kind {}", value_kind_name(kind), name,
                                      value_kind_name(first.kind))));
  } else if (first.type != type) {
    fail(invalid_argument(
        fmt::format("weight '{}' is declared as {} and again as {}", name, first.type.to_string(), type.to_string())));
  } else {
    return found->second;
  }
  return ValueId{-1};
}

ValueId GraphBuilder::input(std::string name, Type type) {
  const ValueId id = declare(std::move(name), std::move(type), ValueKind::kInput);
  if (ok()) graph_.inputs.push_back(id);
  return id;
}

ValueId GraphBuilder::weight(std::string name, Type type) {
  const std::size_t before = graph_.values.size();
  const ValueId id = declare(std::move(name), std::move(type), ValueKind::kWeight);
  if (graph_.values.size() > before) graph_.weights.push_back(id);
  return id;
}

ValueId GraphBuilder::state(std::string name, Type type) {
  const ValueId id = declare(std::move(name), std::move(type), ValueKind::kState);
  if (ok()) graph_.states.push_back(id);
  return id;
}

void GraphBuilder::cache_group(CacheGroup group) {
  if (ok()) graph_.cache_groups.push_back(std::move(group));
}

std::string GraphBuilder::unique_name(std::string_view op) {
  std::string base = scope_.empty() ? std::string(op) : fmt::format("{}.{}", scope_, op);
  if (!values_by_name_.contains(base)) return base;
  int& number = next_number_[base];
  for (;;) {
    std::string name = fmt::format("{}.{}", base, ++number);
    if (!values_by_name_.contains(name)) return name;
  }
}

Result<std::vector<ValueId>> GraphBuilder::add_node(std::string_view name, std::vector<ValueId> operands,
                                                    Attributes attributes) {
  const OpDecl* decl = TRY(ops_.get(name));
  Node node{.op = std::string(name), .operands = std::move(operands), .mutates = {}, .results = {}, .attributes = {}};
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    node.mutates.push_back(i < decl->operands.size() && decl->operands[i].mutated);
  }
  std::stable_sort(attributes.begin(), attributes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  node.attributes = std::move(attributes);
  std::vector<Type> types = TRY(check_node(*decl, graph_, node));

  const NodeId id{static_cast<std::int32_t>(graph_.nodes.size())};
  for (Type& type : types) {
    const ValueId result = add_value(unique_name(name), std::move(type), ValueKind::kResult);
    graph_.value(result).producer = id;
    node.results.push_back(result);
  }
  std::vector<ValueId> results = node.results;
  graph_.nodes.push_back(std::move(node));
  return results;
}

std::vector<ValueId> GraphBuilder::multi_op(std::string_view name, std::vector<ValueId> operands,
                                            Attributes attributes) {
  if (ok()) {
    const std::size_t index = graph_.nodes.size();
    Result<std::vector<ValueId>> results = add_node(name, std::move(operands), std::move(attributes));
    if (results.ok()) return *std::move(results);
    fail(std::move(results).status().with_context(fmt::format("node {} ({})", index, name)));
  }
  return std::vector<ValueId>(kMaxResults, ValueId{-1});
}

ValueId GraphBuilder::op(std::string_view name, std::vector<ValueId> operands, Attributes attributes) {
  const std::vector<ValueId> results = multi_op(name, std::move(operands), std::move(attributes));
  if (!ok() || results.empty()) return ValueId{-1};
  if (results.size() > 1) {
    fail(internal_error(fmt::format("node {} ({}) has {} results: it is built with multi_op()", graph_.nodes.size() - 1,
                                    name, results.size())));
    return ValueId{-1};
  }
  return results[0];
}

void GraphBuilder::output(ValueId value) {
  if (!ok()) return;
  if (!in_range(graph_, value)) {
    fail(invalid_argument(
        fmt::format("output {} is value {}, which does not exist", graph_.outputs.size(), value.value())));
    return;
  }
  graph_.outputs.push_back(value);
}

Result<Graph> GraphBuilder::finish() {
  Graph graph = std::exchange(graph_, {});
  const Status error = std::exchange(error_, {});
  scope_.clear();
  values_by_name_.clear();
  next_number_.clear();
  if (!error.ok()) return error.with_context(fmt::format("graph '{}'", graph.name));
  return graph;
}

}  // namespace tessera::ir
