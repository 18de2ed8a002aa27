#include "tessera/plugin/c_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace tessera::plugin {
namespace {

static_assert(TESSERA_PLUGIN_NUM_SYMBOLS == ir::kNumSymbols);
static_assert(TESSERA_PLUGIN_MAX_RANK == kMaxRank);
static_assert(TESSERA_PLUGIN_ALIGNMENT == kDeviceAlignment);
static_assert(TESSERA_PLUGIN_F8E4M3 == static_cast<int>(ir::DType::kFloat8E4M3));
static_assert(TESSERA_PLUGIN_P3 == static_cast<int>(ir::Symbol::kPages3));
static_assert(TESSERA_PLUGIN_INTS == static_cast<int>(ir::AttributeKind::kInts));
static_assert(TESSERA_PLUGIN_MAX_RESULTS == 8);

// Converts a dimension by parsing the output of Dim::to_string(), for example "T", "2*T + 8" or "(T + 4)/2".
Result<tessera_plugin_dim> c_dim(const ir::Dim& dim) {
  if (!dim.representable()) return invalid_argument("a dimension exceeds 64 bits");
  tessera_plugin_dim c{.constant = 0, .coefficients = {}, .divisor = 1};
  const std::string text = dim.to_string();
  std::string_view rest = text;
  const auto take_number = [&rest]() -> std::uint64_t {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return error == std::errc{} ? number : 1;
  };
  bool negative = false;
  while (!rest.empty()) {
    const char first = rest.front();
    if (first == '(' || first == ')' || first == ' ' || first == '+' || first == '-') {
      if (first == '+' || first == '-') negative = first == '-';
      rest.remove_prefix(1);
      continue;
    }
    if (first == '/') {
      rest.remove_prefix(1);
      c.divisor = static_cast<std::int64_t>(take_number());
      continue;
    }
    const std::uint64_t magnitude = take_number();
    const auto number = static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
    if (rest.starts_with('*')) rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, rest.find_first_of(" )/"));
    if (word.empty()) {
      c.constant = number;
      continue;
    }
    const std::optional<ir::Symbol> symbol = ir::parse_symbol(word);
    if (!symbol) return internal_error(fmt::format("dimension {} has no symbol '{}'", text, word));
    c.coefficients[static_cast<std::size_t>(*symbol)] = number;
    rest.remove_prefix(word.size());
  }
  return c;
}

Result<ir::Dim> from_c(const tessera_plugin_dim& c) {
  if (c.divisor < 1)
    return invalid_argument(fmt::format("a dimension's divisor is {}; 1 or more is accepted", c.divisor));
  ir::Dim dim = c.constant;
  for (std::size_t s = 0; s < ir::kNumSymbols; ++s)
    if (c.coefficients[s] != 0) dim = dim + ir::Dim(static_cast<ir::Symbol>(s)) * c.coefficients[s];
  dim = dim.divided_by(c.divisor);
  if (!dim.representable()) return invalid_argument("a dimension exceeds 64 bits");
  return dim;
}

Result<ir::Attribute> value_of(const tessera_plugin_attribute& c) {
  switch (c.kind) {
    case TESSERA_PLUGIN_BOOL: return ir::Attribute(c.integer != 0);
    case TESSERA_PLUGIN_INT: return ir::Attribute(c.integer);
    case TESSERA_PLUGIN_DOUBLE: return ir::Attribute(c.number);
    case TESSERA_PLUGIN_STRING:
      if (c.string == nullptr) return invalid_argument(fmt::format("attribute {} has no string", c.name));
      return ir::Attribute(std::string(c.string));
    case TESSERA_PLUGIN_INTS:
      if (c.ints == nullptr && c.num_ints > 0)
        return invalid_argument(fmt::format("attribute {} has no integers", c.name));
      return ir::Attribute(std::vector<std::int64_t>(c.ints, c.ints + c.num_ints));
    default: return invalid_argument(fmt::format("attribute {} is of kind {}; 0 to 4 are accepted", c.name, c.kind));
  }
}

}  // namespace

Result<tessera_plugin_type> to_c(const ir::Type& type) {
  if (type.shape.size() > TESSERA_PLUGIN_MAX_RANK)
    return invalid_argument(fmt::format("{} has more than {} dimensions", type.to_string(), TESSERA_PLUGIN_MAX_RANK));
  tessera_plugin_type c{};
  c.dtype = static_cast<std::int32_t>(type.dtype);
  c.rank = static_cast<std::int32_t>(type.shape.size());
  for (std::size_t i = 0; i < type.shape.size(); ++i) c.dims[i] = TRY(c_dim(type.shape[i]));
  return c;
}

Result<ir::Type> from_c(const tessera_plugin_type& c) {
  if (c.dtype < 0 || c.dtype > TESSERA_PLUGIN_F8E4M3)
    return invalid_argument(fmt::format("a type's dtype is {}; 0 to {} are accepted", c.dtype, TESSERA_PLUGIN_F8E4M3));
  if (c.rank < 0 || c.rank > TESSERA_PLUGIN_MAX_RANK)
    return invalid_argument(fmt::format("a type's rank is {}; 0 to {} are accepted", c.rank, TESSERA_PLUGIN_MAX_RANK));
  ir::Type type{static_cast<ir::DType>(c.dtype), {}};
  for (std::int32_t i = 0; i < c.rank; ++i) type.shape.push_back(TRY(from_c(c.dims[i])));
  return type;
}

tessera_plugin_type type_of(const TensorView& view) {
  tessera_plugin_type c{};
  c.dtype = static_cast<std::int32_t>(view.dtype);
  c.rank = view.rank;
  for (int i = 0; i < view.rank; ++i) c.dims[i] = {.constant = view.dim(i), .coefficients = {}, .divisor = 1};
  return c;
}

tessera_plugin_address to_c(DeviceAddress address) { return {address.handle, address.offset}; }

DeviceAddress from_c(tessera_plugin_address address) {
  return {static_cast<std::byte*>(address.handle), address.offset};
}

tessera_plugin_tensor to_c(const TensorView& view) {
  tessera_plugin_tensor c{};
  c.data = to_c(view.data);
  c.dtype = static_cast<std::int32_t>(view.dtype);
  c.rank = view.rank;
  std::copy_n(view.dims.begin(), view.rank, c.dims);
  c.is_weight = view.is_weight ? 1 : 0;
  return c;
}

std::vector<tessera_plugin_attribute> to_c(const std::vector<std::pair<std::string, ir::Attribute>>& attributes) {
  std::vector<tessera_plugin_attribute> all;
  for (const auto& [name, value] : attributes) {
    tessera_plugin_attribute c{};
    c.name = name.c_str();
    c.kind = static_cast<std::int32_t>(value.index());
    if (const auto* flag = std::get_if<bool>(&value)) c.integer = *flag ? 1 : 0;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) c.integer = *integer;
    if (const auto* number = std::get_if<double>(&value)) c.number = *number;
    if (const auto* text = std::get_if<std::string>(&value)) c.string = text->c_str();
    if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
      c.ints = ints->data();
      c.num_ints = ints->size();
    }
    all.push_back(c);
  }
  return all;
}

Result<std::vector<std::pair<std::string, ir::Attribute>>> from_c(const tessera_plugin_attribute* attributes,
                                                                  std::size_t count) {
  std::vector<std::pair<std::string, ir::Attribute>> all;
  if (attributes == nullptr && count > 0) return invalid_argument(fmt::format("{} attributes at null", count));
  for (std::size_t i = 0; i < count; ++i) {
    if (attributes[i].name == nullptr) return invalid_argument(fmt::format("attribute {} has no name", i));
    ir::Attribute value = TRY(value_of(attributes[i]));
    all.emplace_back(attributes[i].name, std::move(value));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return all;
}

CNode::CNode(const ir::Node& node, std::vector<tessera_plugin_type> operands)
    : attributes_(to_c(node.attributes)),
      operands_(std::move(operands)),
      node_{.size = sizeof(node_),
            .op = node.op.c_str(),
            .attributes = attributes_.data(),
            .num_attributes = attributes_.size(),
            .operands = operands_.data(),
            .num_operands = operands_.size()} {}

Result<std::vector<tessera_plugin_type>> CNode::types(std::span<const ir::Type> operands) {
  std::vector<tessera_plugin_type> all;
  for (const ir::Type& type : operands) all.push_back(TRY(to_c(type)));
  return all;
}

}  // namespace tessera::plugin
