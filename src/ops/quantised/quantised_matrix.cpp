#include "tessera/ops/quantised/quantised_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/quantised/blocks/dequantise.h"

namespace tessera {
namespace {

using Values = QuantisedFormat::Values;
using Scales = QuantisedFormat::Scales;

constexpr std::array<std::string_view, 4> kValues{"e4m3", "int8", "int4", "e2m1"};  // in Values' order, without kBlocks
constexpr std::array<std::string_view, 4> kScales{"f32", "e4m3", "f16", "pairs"};   // in Scales' order

template <class Enum, std::size_t kCount>
Result<Enum> named(const ir::Node& node, std::string_view attribute,
                   const std::array<std::string_view, kCount>& names) {
  const std::string name = string_attribute(node, attribute, names[0]);
  const auto* found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  return invalid_argument(
      fmt::format("{}: {} = \"{}\"; it must be \"{}\"", node.op, attribute, name, fmt::join(names, "\" or \"")));
}

std::string lower(std::string_view name) {
  std::string text(name);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// Returns a list of all names of values, for error messages.
std::string names_of_values() {
  std::string names = fmt::format("\"{}\"", fmt::join(kValues, "\", \""));
  for (const BlockTypeInfo& info : kBlockTypes)
    if (can_dequantise(info.type)) names += fmt::format(", \"{}\"", lower(info.name));
  return names;
}

}  // namespace

const BlockTypeInfo* block_values(std::string_view values) {
  for (const BlockTypeInfo& info : kBlockTypes)
    if (can_dequantise(info.type) && lower(info.name) == values) return &info;
  return nullptr;
}

ir::Attributes QuantisedFormat::attributes() const {
  if (is_blocks()) return {{"values", lower(block_type_info(blocks).name)}};
  return {{"values", std::string(kValues[static_cast<std::size_t>(values)])},
          {"scales", std::string(kScales[static_cast<std::size_t>(scales)])},
          {"group_rows", group_rows},
          {"group_cols", group_cols},
          {"factor", factor},
          {"zeros", zeros},
          {"groups", groups}};
}

std::vector<ir::AttributeDecl> quantised_attributes() {
  return {{.name = "values", .kind = ir::AttributeKind::kString, .required = true},
          {.name = "scales", .kind = ir::AttributeKind::kString},
          {.name = "group_rows", .kind = ir::AttributeKind::kInt},
          {.name = "group_cols", .kind = ir::AttributeKind::kInt},
          {.name = "factor", .kind = ir::AttributeKind::kBool},
          {.name = "zeros", .kind = ir::AttributeKind::kBool},
          {.name = "groups", .kind = ir::AttributeKind::kBool}};
}

Result<QuantisedFormat> QuantisedFormat::of(const ir::Node& node) {
  const std::string values = string_attribute(node, "values", "");
  if (const BlockTypeInfo* type = block_values(values))
    return QuantisedFormat{.values = Values::kBlocks, .blocks = type->type};
  const auto* found = std::ranges::find(kValues, values);
  if (found == kValues.end())
    return invalid_argument(
        fmt::format("{}: values = \"{}\"; it must be one of {}", node.op, values, names_of_values()));
  const Scales scales = TRY(named<Scales>(node, "scales", kScales));
  QuantisedFormat format{.values = static_cast<Values>(found - kValues.begin()),
                         .scales = scales,
                         .group_rows = node.attribute_or("group_rows", std::int64_t{0}),
                         .group_cols = node.attribute_or("group_cols", std::int64_t{0}),
                         .factor = node.attribute_or("factor", false),
                         .zeros = node.attribute_or("zeros", false),
                         .groups = node.attribute_or("groups", false)};
  for (const auto& [name, size] :
       {std::pair{"group_rows", format.group_rows}, std::pair{"group_cols", format.group_cols}})
    if (size < 1) return invalid_argument(fmt::format("{}: {} = {}; it must be at least 1", node.op, name, size));
  if (format.zeros && format.values != Values::kInt4)
    return invalid_argument(fmt::format("{}: zeros go with values \"int4\", not \"{}\"", node.op,
                                        kValues[static_cast<std::size_t>(format.values)]));
  if (scales == Scales::kPairs && (format.group_rows != 1 || format.factor || format.zeros || format.groups))
    return invalid_argument(
        fmt::format("{}: scales \"pairs\" go with group_rows = 1, and without factor, zeros and groups", node.op));
  return format;
}

namespace {

// Checks the only operand of a matrix of blocks.
Result<MatrixSize> expect_blocks(const ir::OpSignature& s, const ir::Type& w, BlockType type) {
  const BlockTypeInfo& info = block_type_info(type);
  const std::int64_t rows = w.shape[0].constant().value_or(0);
  const std::int64_t bytes = w.shape[1].constant().value_or(0);
  if (w.dtype != ir::DType::kUInt8 || rows < 1 || bytes < 1 || bytes % info.bytes != 0)
    return refuse(s, fmt::format("w is {}; for {} it must be u8[N, a multiple of {}], with numbers above 0",
                                 w.to_string(), info.name, info.bytes));
  return MatrixSize{.rows = rows, .cols = bytes / info.bytes * info.elements};
}

}  // namespace

Result<MatrixSize> expect_quantised(const ir::OpSignature& s, std::size_t first, const QuantisedFormat& format) {
  TRY(expect_rank(s, first, "w", 2));
  const ir::Type& w = s.operands[first];
  if (format.is_blocks()) return expect_blocks(s, w, format.blocks);
  const MatrixSize size{.rows = w.shape[0].constant().value_or(0),
                        .cols = w.shape[1].constant().value_or(0) * format.values_of_byte()};
  if (w.dtype != ir::DType::kUInt8 || size.rows < 1 || size.cols < 1)
    return refuse(s, fmt::format("w is {}; it must be u8[N, bytes of a row], with numbers above 0", w.to_string()));
  TRY(expect_rank(s, first + 1, "scales", 2));
  const std::int64_t scale_rows = ceil_div(size.rows, format.group_rows);
  // With "groups" each column names its scale, so a row may have any number of scales.
  const std::int64_t groups =
      format.groups ? s.operands[first + 1].shape[1].constant().value_or(0) : ceil_div(size.cols, format.group_cols);
  if (groups < 1) return refuse(s, fmt::format("scales are {}; no row has a scale", s.operands[first + 1].to_string()));
  constexpr std::array kTypes{ir::DType::kFloat32, ir::DType::kUInt8, ir::DType::kFloat16, ir::DType::kFloat16};
  TRY(expect_type(s, first + 1, "scales",
                  {kTypes[static_cast<std::size_t>(format.scales)],
                   {scale_rows, format.scales == Scales::kPairs ? 2 * groups : groups}}));
  std::size_t next = first + 2;
  if (format.factor) TRY(expect_type(s, next++, "factor", {ir::DType::kFloat32, {size.rows}}));
  if (format.zeros) TRY(expect_type(s, next++, "zeros", {ir::DType::kUInt8, {size.rows, groups}}));
  if (format.groups) TRY(expect_type(s, next, "groups", {ir::DType::kInt32, {size.cols}}));
  return size;
}

Status refuse_blocks(std::string_view op, BlockType type) {
  return unimplemented(
      fmt::format("{}: CUDA has no kernels for values = \"{}\", a type of GGUF files; the CPU has them", op,
                  lower(block_type_info(type).name)));
}

QuantisedMatrix make_quantised_matrix(const QuantisedFormat& format, std::span<const TensorView> operands) {
  if (format.is_blocks()) {
    const BlockTypeInfo& info = block_type_info(format.blocks);
    return {.format = format,
            .rows = operands[0].dim(0),
            .cols = operands[0].dim(1) / info.bytes * info.elements,
            .values = operands[0].as<std::uint8_t>()};
  }
  QuantisedMatrix m{.format = format,
                    .rows = operands[0].dim(0),
                    .cols = operands[0].dim(1) * format.values_of_byte(),
                    .num_groups = operands[1].dim(1) / (format.scales == Scales::kPairs ? 2 : 1),
                    .values = operands[0].as<std::uint8_t>(),
                    .scales = operands[1].data.raw()};
  std::size_t next = 2;
  if (format.factor) m.factor = operands[next++].as<float>();
  if (format.zeros) m.zeros = operands[next++].as<std::uint8_t>();
  if (format.groups) m.groups = operands[next].as<std::int32_t>();
  return m;
}

}  // namespace tessera
