#include "tessera/ops/moe_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "tessera/ops/moe_route.h"
#include "tessera/ops/shape_rule.h"

namespace tessera {
namespace {

constexpr std::string_view kActivations[] = {"silu", "gelu_tanh", "clamped_swiglu"};  // in GatedActivation's order

Result<GatedActivation> activation_of(const ir::OpSignature& s) {
  const std::string name = string_attribute(s.node, "activation", kActivations[0]);
  for (std::size_t i = 0; i < std::size(kActivations); ++i)
    if (name == kActivations[i]) return static_cast<GatedActivation>(i);
  return refuse(s, fmt::format("activation = \"{}\"; it must be \"{}\"", name, fmt::join(kActivations, "\" or \"")));
}

// A matrix for each expert, gate_up or down.
Result<ir::Shape> stack_of(const ir::OpSignature& s, std::size_t i, std::string_view name) {
  TRY(expect_rank(s, i, name, 3));
  for (const ir::Dim& dim : s.operands[i].shape)
    if (dim.constant().value_or(0) < 1)
      return refuse(s, fmt::format("{} is {}; its sizes must be numbers above 0", name, s.operands[i].to_string()));
  return s.operands[i].shape;
}

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const bool gate_up_bias = s.node.attribute_or("gate_up_bias", false);
  const bool down_bias = s.node.attribute_or("down_bias", false);
  const std::size_t expected = 5 + std::size_t{gate_up_bias} + std::size_t{down_bias};
  if (s.operands.size() != expected)
    return refuse(s, fmt::format("gate_up_bias = {} and down_bias = {} take {} operands, not {}", gate_up_bias,
                                 down_bias, expected, s.operands.size()));
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  const std::int64_t hidden = TRY(constant_cols(s, 0, "x"));
  TRY(expect_rank(s, 1, "ids", 2));
  const std::int64_t top_k = TRY(constant_cols(s, 1, "ids"));
  TRY(expect_type(s, 1, "ids", {ir::DType::kInt32, {x.shape[0], top_k}}));
  TRY(expect_type(s, 2, "weights", {ir::DType::kFloat32, {x.shape[0], top_k}}));

  const ir::Shape stack = TRY(stack_of(s, 3, "gate_up"));
  if (*stack[0].constant() > kMaxExperts)
    return refuse(s, fmt::format("{} experts; it takes at most {}", *stack[0].constant(), kMaxExperts));
  const std::int64_t rows = *stack[1].constant();
  if (rows % 2 != 0) return refuse(s, fmt::format("gate_up has {} rows; gate and up are halves of them", rows));
  TRY(expect_type(s, 3, "gate_up", {x.dtype, {stack[0], rows, hidden}}));
  TRY(stack_of(s, 4, "down"));
  TRY(expect_type(s, 4, "down", {x.dtype, {stack[0], hidden, rows / 2}}));
  if (gate_up_bias) TRY(expect_type(s, 5, "gate_up_bias", {x.dtype, {stack[0], rows}}));
  if (down_bias) TRY(expect_type(s, expected - 1, "down_bias", {x.dtype, {stack[0], hidden}}));
  if (TRY(activation_of(s)) == GatedActivation::kClampedSwiglu) TRY(expect_positive(s, "limit"));
  return std::vector{x};
}

}  // namespace

ExpertsProblem make_experts_problem(const BindArgs& args) {
  const auto data = [&](std::size_t i) -> std::byte* { return args.operands[i].data.raw(); };
  const std::string activation = string_attribute(args.node, "activation", kActivations[0]);
  const auto* name = std::find(std::begin(kActivations), std::end(kActivations), activation);
  ExpertsProblem p{.tokens = args.operands[0].dim(0),
                   .top_k = args.operands[1].dim(1),
                   .experts = args.operands[3].dim(0),
                   .hidden = args.operands[0].dim(1),
                   .intermediate = args.operands[4].dim(2),
                   .activation = static_cast<GatedActivation>(name - std::begin(kActivations)),
                   .limit = static_cast<float>(args.node.attribute_or("limit", 0.0)),
                   .dtype = args.operands[0].dtype,
                   .x = data(0),
                   .ids = args.operands[1].as<std::int32_t>(),
                   .weights = args.operands[2].as<float>(),
                   .gate_up = data(3),
                   .down = data(4),
                   .y = args.results[0].data.raw()};
  std::size_t next = 5;
  if (args.node.attribute_or("gate_up_bias", false)) p.gate_up_bias = data(next++);
  if (args.node.attribute_or("down_bias", false)) p.down_bias = data(next);
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
                 {.name = "down_bias", .optional = true}},
    .attributes = {{.name = "activation", .kind = ir::AttributeKind::kString},
                   {.name = "limit", .kind = ir::AttributeKind::kDouble},
                   {.name = "gate_up_bias", .kind = ir::AttributeKind::kBool},
                   {.name = "down_bias", .kind = ir::AttributeKind::kBool}},
    .infer = infer,
};

}  // namespace tessera
