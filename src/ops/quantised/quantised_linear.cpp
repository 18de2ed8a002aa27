#include "tessera/ops/quantised/quantised_linear.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kInputs{"plain", "token", "group", "block"};

Result<std::vector<ir::Type>> infer_quantised_linear(const ir::OpSignature& s) {
  const QuantisedFormat format = TRY(QuantisedFormat::of(s.node));
  const bool bias = s.node.attribute_or("bias", false);
  const bool residual = s.node.attribute_or("residual", false);
  const std::size_t expected = 1 + format.num_operands() + std::size_t{bias} + std::size_t{residual};
  if (s.operands.size() != expected)
    return refuse(s,
                  fmt::format("factor = {}, zeros = {}, groups = {}, bias = {} and residual = {} take {} operands, "
                              "not {}",
                              format.factor, format.zeros, format.groups, bias, residual, expected, s.operands.size()));
  const std::string inputs = string_attribute(s.node, "inputs", kInputs[0]);
  if (std::ranges::find(kInputs, inputs) == kInputs.end())
    return refuse(s, fmt::format("inputs = \"{}\"; it must be \"{}\"", inputs, fmt::join(kInputs, "\" or \"")));
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_min_rank(s, 0, "x", 1));
  const MatrixSize size = TRY(expect_quantised(s, 1, format));
  ir::Type y = s.operands[0];
  if (y.shape.back() != ir::Dim(size.cols))
    return refuse(s, fmt::format("x is {} and w has {} columns; x's last dimension must equal w's columns",
                                 y.to_string(), size.cols));
  y.shape.back() = size.rows;
  if (bias) TRY(expect_type(s, 1 + format.num_operands(), "bias", {y.dtype, {size.rows}}));
  if (residual) TRY(expect_type(s, expected - 1, "residual", y));
  return std::vector<ir::Type>{y};
}

std::vector<ir::AttributeDecl> attributes() {
  std::vector<ir::AttributeDecl> all = quantised_attributes();
  for (const char* name : {"bias", "residual"}) all.push_back({.name = name, .kind = ir::AttributeKind::kBool});
  all.push_back({.name = "inputs", .kind = ir::AttributeKind::kString});
  return all;
}

}  // namespace

const ir::OpDecl kQuantisedLinear{
    .name = "quantised_linear",
    .summary = "y = x w^T + bias + residual, w of small values with scales; x [*, K], w [N, K], y [*, N]",
    .operands = {{.name = "x"},
                 {.name = "w"},
                 {.name = "scales", .optional = true},
                 {.name = "factor", .optional = true},
                 {.name = "zeros", .optional = true},
                 {.name = "groups", .optional = true},
                 {.name = "bias", .optional = true},
                 {.name = "residual", .optional = true}},
    .attributes = attributes(),
    .infer = infer_quantised_linear,
    .rows = ir::RowUse::kByRow,
};

}  // namespace tessera
