#include "tessera/compile/passes/operators.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera {
namespace {

// A boolean attribute of an operator. If it is absent, its value is false.
struct FalseWhenAbsent {
  std::string_view op;
  std::string_view attribute;
};
constexpr FalseWhenAbsent kFalseWhenAbsent[] = {{"linear", "bias"}, {"linear", "residual"}, {"rotary", "interleaved"}};

bool false_when_absent(std::string_view op, std::string_view attribute) {
  return std::any_of(std::begin(kFalseWhenAbsent), std::end(kFalseWhenAbsent),
                     [&](const FalseWhenAbsent& a) { return a.op == op && a.attribute == attribute; });
}

bool same_attribute(const ir::Attribute& a, const ir::Attribute& b) {
  const double* x = std::get_if<double>(&a);
  const double* y = std::get_if<double>(&b);
  if (x == nullptr || y == nullptr) return a == b;
  return std::bit_cast<std::uint64_t>(*x) == std::bit_cast<std::uint64_t>(*y);
}

// Returns whether `b` has each attribute of `a`, with the same value. If an attribute is false in `a` and its absence
// means false, it may be absent in `b`.
bool covers(const ir::Node& a, const ir::Node& b) {
  return std::all_of(a.attributes.begin(), a.attributes.end(), [&](const auto& attribute) {
    const ir::Attribute* other = b.find_attribute(attribute.first);
    if (other != nullptr) return same_attribute(attribute.second, *other);
    return attribute.second == ir::Attribute(false) && false_when_absent(a.op, attribute.first);
  });
}

}  // namespace

bool commutes(const ir::Graph& graph, const ir::Node& node) {
  return (node.op == "add" || node.op == "mul") &&
         graph.value(node.operands[0]).type == graph.value(node.operands[1]).type;
}

bool meets_other_ranks(const ir::Node& node, const ir::OpTable& ops) {
  return ops.find(node.op)->rows == ir::RowUse::kExchange;
}

bool same_attributes(const ir::Node& a, const ir::Node& b) { return a.op == b.op && covers(a, b) && covers(b, a); }

}  // namespace tessera
