#include "tessera/ops/contract/shape_rule.h"

#include <fmt/format.h>

#include <cmath>
#include <variant>

namespace tessera {

Status refuse(const ir::OpSignature& s, std::string_view message) {
  return invalid_argument(fmt::format("{}: {}", s.node.op, message));
}

Status expect_floating(const ir::OpSignature& s, std::size_t i, std::string_view name) {
  if (ir::is_floating_point(s.operands[i].dtype)) return ok_status();
  return refuse(s, fmt::format("{} is {}; it must be f32, bf16 or f16", name, s.operands[i].to_string()));
}

Status expect_rank(const ir::OpSignature& s, std::size_t i, std::string_view name, std::size_t rank) {
  if (s.operands[i].shape.size() == rank) return ok_status();
  return refuse(s, fmt::format("{} is {}; it must have {} dimensions", name, s.operands[i].to_string(), rank));
}

Status expect_min_rank(const ir::OpSignature& s, std::size_t i, std::string_view name, std::size_t rank) {
  if (s.operands[i].shape.size() >= rank) return ok_status();
  return refuse(s, fmt::format("{} is {}; it must have at least {} dimensions", name, s.operands[i].to_string(), rank));
}

Status expect_type(const ir::OpSignature& s, std::size_t i, std::string_view name, const ir::Type& type) {
  if (s.operands[i] == type) return ok_status();
  return refuse(s, fmt::format("{} is {}; it must be {}", name, s.operands[i].to_string(), type.to_string()));
}

Result<std::int64_t> constant_cols(const ir::OpSignature& s, std::size_t i, std::string_view name) {
  const std::optional<std::int64_t> cols = s.operands[i].shape.back().constant();
  if (cols && *cols > 0) return *cols;
  return refuse(s,
                fmt::format("{} is {}; its last dimension must be a number above 0", name, s.operands[i].to_string()));
}

Status expect_positive(const ir::OpSignature& s, std::string_view attribute) {
  const double value = s.node.attribute_or(attribute, 0.0);
  if (std::isfinite(value) && value > 0) return ok_status();
  return refuse(s, fmt::format("{} = {}; it must be above 0", attribute, value));
}

std::string string_attribute(const ir::Node& node, std::string_view name, std::string_view fallback) {
  const ir::Attribute* attribute = node.find_attribute(name);
  const std::string* text = attribute ? std::get_if<std::string>(attribute) : nullptr;
  return text ? *text : std::string(fallback);
}

}  // namespace tessera
