#include "tessera/ir/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>

namespace tessera::ir {
namespace {

template <class T>
T typed_or(const Attribute* attribute, T fallback) {
  if (attribute == nullptr) return fallback;
  const T* value = std::get_if<T>(attribute);
  assert(value != nullptr && "the attribute has another type than asked for");
  return value != nullptr ? *value : fallback;
}

bool same_attribute(const Attribute& a, const Attribute& b) {
  const double* x = std::get_if<double>(&a);
  const double* y = std::get_if<double>(&b);
  if (x == nullptr || y == nullptr) return a == b;
  return std::bit_cast<std::uint64_t>(*x) == std::bit_cast<std::uint64_t>(*y) || (std::isnan(*x) && std::isnan(*y));
}

bool same_attributes(const Node& a, const Node& b) {
  return std::equal(
      a.attributes.begin(), a.attributes.end(), b.attributes.begin(), b.attributes.end(),
      [](const auto& x, const auto& y) { return x.first == y.first && same_attribute(x.second, y.second); });
}

}  // namespace

std::string_view value_kind_name(ValueKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"input", "weight", "state", "result"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view cache_group_kind_name(CacheGroup::Kind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"paged", "window", "latent", "state"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<std::size_t> cache_group_of(const Type& type) {
  for (std::size_t group = 0; group < kMaxCacheGroups && !type.shape.empty(); ++group)
    if (type.shape[0] == Dim(page_symbol(group))) return group;
  return std::nullopt;
}

const Attribute* Node::find_attribute(std::string_view name) const {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const auto& attribute) { return attribute.first == name; });
  return found == attributes.end() ? nullptr : &found->second;
}

bool Node::attribute_or(std::string_view name, bool fallback) const { return typed_or(find_attribute(name), fallback); }

std::int64_t Node::attribute_or(std::string_view name, std::int64_t fallback) const {
  return typed_or(find_attribute(name), fallback);
}

double Node::attribute_or(std::string_view name, double fallback) const {
  return typed_or(find_attribute(name), fallback);
}

const Value* Graph::find_value(std::string_view value_name) const {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const Value& value) { return value.name == value_name; });
  return found == values.end() ? nullptr : &*found;
}

Result<Type> Graph::type_of(std::string_view value_name) const {
  const Value* const found = find_value(value_name);
  if (found == nullptr) return internal_error(fmt::format("graph {} has no value \"{}\"", name, value_name));
  return found->type;
}

bool structurally_equal(const Graph& a, const Graph& b) {
  const auto find = [](const Graph& graph, ValueId id) -> const Value* {
    return id.value() >= 0 && id.index() < graph.values.size() ? &graph.value(id) : nullptr;
  };
  const auto same_value = [&](ValueId x, ValueId y) {
    const Value* of_a = find(a, x);
    const Value* of_b = find(b, y);
    if (of_a == nullptr || of_b == nullptr) return of_a == of_b && x == y;
    return of_a->name == of_b->name && of_a->type == of_b->type && of_a->kind == of_b->kind &&
           of_a->producer == of_b->producer;
  };
  const auto same_values = [&](const std::vector<ValueId>& x, const std::vector<ValueId>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_value);
  };
  const auto same_node = [&](const Node& x, const Node& y) {
    return x.op == y.op && x.mutates == y.mutates && same_values(x.operands, y.operands) &&
           same_values(x.results, y.results) && same_attributes(x, y);
  };
  return a.name == b.name && a.values.size() == b.values.size() && a.cache_groups == b.cache_groups &&
         same_values(a.inputs, b.inputs) && same_values(a.weights, b.weights) && same_values(a.states, b.states) &&
         same_values(a.outputs, b.outputs) &&
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), same_node);
}

}  // namespace tessera::ir
