#include "tessera/ops/moe/moe_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/moe/moe_quantised.h"
#include "tessera/ops/moe/moe_route.h"

namespace tessera {
namespace {

constexpr std::string_view kActivations[] = {"silu", "gelu_tanh", "clamped_swiglu"};  // in the order of GatedActivation

Result<GatedActivation> activation_of(const ir::OpSignature& s) {
  const std::string name = string_attribute(s.node, "activation", kActivations[0]);
  for (std::size_t i = 0; i < std::size(kActivations); ++i)
    if (name == kActivations[i]) return static_cast<GatedActivation>(i);
  return refuse(s, fmt::format("activation = \"{}\"; it must be \"{}\"", name, fmt::join(kActivations, "\" or \"")));
}

// Returns the type of a stack of matrices, one for each expert.
ir::Type stack_type(ir::DType dtype, const ir::Dim& experts, std::int64_t rows, std::int64_t columns) {
  return {dtype, {experts, rows, columns}};
}

// Checks gate_up or down, which has one matrix for each expert, and returns its shape.
Result<ir::Shape> stack_of(const ir::OpSignature& s, std::size_t i, std::string_view name) {
  TRY(expect_rank(s, i, name, 3));
  for (const ir::Dim& dim : s.operands[i].shape)
    if (dim.constant().value_or(0) < 1)
      return refuse(s, fmt::format("{} is {}; its sizes must be numbers above 0", name, s.operands[i].to_string()));
  return s.operands[i].shape;
}

// Checks gate_up and down with 4-bit values, and their scales, which are the last two operands.
Status check_mxfp4(const ir::OpSignature& s, std::int64_t hidden) {
  const ir::Shape& stack = s.operands[3].shape;
  const std::int64_t rows = *stack[1].constant();
  for (const auto& [name, size] : {std::pair{"x", hidden}, std::pair{"down", rows / 2}})
    if (size % kMxfp4Block != 0)
      return refuse(s, fmt::format("{} has {} columns; mxfp4 takes multiples of {}", name, size, kMxfp4Block));
  const auto expect = [&](std::size_t i, std::string_view name, std::int64_t of_rows, std::int64_t columns) {
    return expect_type(s, i, name, stack_type(ir::DType::kUInt8, stack[0], of_rows, columns));
  };
  const std::size_t scales = s.operands.size() - 2;
  TRY(expect(3, "gate_up", rows, hidden / 2));
  TRY(expect(4, "down", hidden, rows / 4));
  TRY(expect(scales, "gate_up_scale", rows, hidden / kMxfp4Block));
  return expect(scales + 1, "down_scale", hidden, rows / 2 / kMxfp4Block);
}

// Checks gate_up and down, which have x's type or are MXFP4, and returns their sizes.
Result<ExpertSizes> check_stacks(const ir::OpSignature& s, std::int64_t hidden) {
  const ir::DType dtype = s.operands[0].dtype;
  const ir::Shape stack = TRY(stack_of(s, 3, "gate_up"));
  const std::int64_t rows = *stack[1].constant();
  if (rows % 2 != 0) return refuse(s, fmt::format("gate_up has {} rows; gate and up are halves of them", rows));
  TRY(stack_of(s, 4, "down"));
  if (s.node.attribute_or("mxfp4", false)) {
    TRY(check_mxfp4(s, hidden));
  } else {
    TRY(expect_type(s, 3, "gate_up", stack_type(dtype, stack[0], rows, hidden)));
    TRY(expect_type(s, 4, "down", stack_type(dtype, stack[0], hidden, rows / 2)));
  }
  return ExpertSizes{.experts = *stack[0].constant(), .intermediate = rows / 2};
}

// Checks the weights: gate_up, down and their biases and scales, which are operands 3 and later.
Status check_weights(const ir::OpSignature& s, std::int64_t hidden, std::size_t biases) {
  const ir::DType dtype = s.operands[0].dtype;
  const ExpertSizes size = s.node.attribute_or("quantised", false) ? TRY(check_quantised_experts(s, hidden, 5 + biases))
                                                                   : TRY(check_stacks(s, hidden));
  if (size.experts > kMaxExperts)
    return refuse(s, fmt::format("{} experts; it takes at most {}", size.experts, kMaxExperts));
  const std::int64_t routed = s.node.attribute_or("routed_experts", size.experts);
  if (routed < size.experts || routed > kMaxExperts)
    return refuse(s, fmt::format("routed_experts = {}; it must be {} to {}", routed, size.experts, kMaxExperts));
  std::size_t next = 5;
  if (s.node.attribute_or("gate_up_bias", false))
    TRY(expect_type(s, next++, "gate_up_bias", {dtype, {size.experts, 2 * size.intermediate}}));
  if (s.node.attribute_or("down_bias", false)) TRY(expect_type(s, next, "down_bias", {dtype, {size.experts, hidden}}));
  return ok_status();
}

Result<std::vector<ir::Type>> infer_moe_experts(const ir::OpSignature& s) {
  const bool gate_up_bias = s.node.attribute_or("gate_up_bias", false);
  const bool down_bias = s.node.attribute_or("down_bias", false);
  const bool mxfp4 = s.node.attribute_or("mxfp4", false);
  const bool quantised = s.node.attribute_or("quantised", false);
  if (mxfp4 && quantised) return refuse(s, "mxfp4 and quantised are both true; at most one may be");
  const std::size_t biases = std::size_t{gate_up_bias} + std::size_t{down_bias};
  const std::size_t scales = quantised ? TRY(num_quantised_operands(s.node)) : 2 * std::size_t{mxfp4};
  const std::size_t expected = 5 + biases + scales;
  if (s.operands.size() != expected)
    return refuse(s, fmt::format("gate_up_bias = {}, down_bias = {}, mxfp4 = {} and quantised = {} take {} operands, "
                                 "not {}",
                                 gate_up_bias, down_bias, mxfp4, quantised, expected, s.operands.size()));
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  const std::int64_t hidden = TRY(constant_cols(s, 0, "x"));
  TRY(expect_rank(s, 1, "ids", 2));
  const std::int64_t top_k = TRY(constant_cols(s, 1, "ids"));
  TRY(expect_type(s, 1, "ids", {ir::DType::kInt32, {x.shape[0], top_k}}));
  TRY(expect_type(s, 2, "weights", {ir::DType::kFloat32, {x.shape[0], top_k}}));
  TRY(check_weights(s, hidden, biases));
  if (TRY(activation_of(s)) == GatedActivation::kClampedSwiglu) TRY(expect_positive(s, "limit"));
  return std::vector{x};
}

std::vector<ir::AttributeDecl> attributes() {
  std::vector<ir::AttributeDecl> all{{.name = "activation", .kind = ir::AttributeKind::kString},
                                     {.name = "limit", .kind = ir::AttributeKind::kDouble},
                                     {.name = "gate_up_bias", .kind = ir::AttributeKind::kBool},
                                     {.name = "down_bias", .kind = ir::AttributeKind::kBool},
                                     {.name = "mxfp4", .kind = ir::AttributeKind::kBool},
                                     {.name = "routed_experts", .kind = ir::AttributeKind::kInt},
                                     {.name = "quantised", .kind = ir::AttributeKind::kBool},
                                     {.name = "down_group_rows", .kind = ir::AttributeKind::kInt},
                                     {.name = "down_group_cols", .kind = ir::AttributeKind::kInt},
                                     {.name = "down_values", .kind = ir::AttributeKind::kString},
                                     {.name = "down_scales", .kind = ir::AttributeKind::kString},
                                     {.name = "inputs", .kind = ir::AttributeKind::kString}};
  for (ir::AttributeDecl& of_matrix : quantised_attributes()) {
    of_matrix.required = false;
    all.push_back(of_matrix);
  }
  return all;
}

}  // namespace

ExpertsProblem make_experts_problem(const BindArgs& args) {
  const auto data = [&](std::size_t i) -> std::byte* { return args.operands[i].data.raw(); };
  const std::string activation = string_attribute(args.node, "activation", kActivations[0]);
  const auto* name = std::find(std::begin(kActivations), std::end(kActivations), activation);
  const bool mxfp4 = args.node.attribute_or("mxfp4", false);
  const bool quantised = args.node.attribute_or("quantised", false);
  ExpertsProblem p{.tokens = args.operands[0].dim(0),
                   .top_k = args.operands[1].dim(1),
                   .experts = args.operands[3].dim(0),
                   .hidden = args.operands[0].dim(1),
                   .intermediate = quantised ? 0 : args.operands[4].dim(2) * (mxfp4 ? 2 : 1),
                   .activation = static_cast<GatedActivation>(name - std::begin(kActivations)),
                   .limit = static_cast<float>(args.node.attribute_or("limit", 0.0)),
                   .dtype = args.operands[0].dtype,
                   .x = data(0),
                   .ids = args.operands[1].as<std::int32_t>(),
                   .weights = args.operands[2].as<float>(),
                   .gate_up = data(3),
                   .down = data(4),
                   .mxfp4 = mxfp4,
                   .quantised = quantised,
                   .y = args.results[0].data.raw()};
  std::size_t next = 5;
  if (args.node.attribute_or("gate_up_bias", false)) p.gate_up_bias = data(next++);
  if (args.node.attribute_or("down_bias", false)) p.down_bias = data(next++);
  if (mxfp4) {
    p.gate_up_scale = args.operands[next].as<std::uint8_t>();
    p.down_scale = args.operands[next + 1].as<std::uint8_t>();
  }
  if (quantised) read_quantised_experts(args, next, p);
  p.routed_experts = args.node.attribute_or("routed_experts", p.experts);
  return p;
}

const ir::OpDecl kMoeExperts{
    .name = "moe_experts",
    .summary = "sum over k of weights[t, k] * down[e] a(gate_up[e] x[t]), e = ids[t, k]: x [T, H] -> [T, H]",
    .operands = {{.name = "x"},
                 {.name = "ids"},
                 {.name = "weights"},
                 {.name = "gate_up"},
                 {.name = "down"},
                 {.name = "gate_up_bias", .optional = true},
                 {.name = "down_bias", .optional = true},
                 {.name = "gate_up_scale", .optional = true},
                 {.name = "down_scale", .optional = true},
                 {.name = "gate_up_factor", .optional = true},
                 {.name = "down_factor", .optional = true},
                 {.name = "gate_up_zeros", .optional = true},
                 {.name = "down_zeros", .optional = true}},
    .attributes = attributes(),
    .infer = infer_moe_experts,
    .rows = ir::RowUse::kByRow,
};

}  // namespace tessera
