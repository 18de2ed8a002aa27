#include "tessera/ops/linear/linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/linear/linear_cpu.h"

namespace tessera {
namespace {

struct Optional {
  bool bias;
  bool residual;
};

Optional optional_operands(const ir::Node& node) {
  return {node.attribute_or("bias", false), node.attribute_or("residual", false)};
}

Result<std::vector<ir::Type>> infer_linear(const ir::OpSignature& signature) {
  const ir::Type& x = signature.operands[0];
  const ir::Type& w = signature.operands[1];
  const auto [bias, residual] = optional_operands(signature.node);
  const std::size_t expected = 2 + std::size_t{bias} + std::size_t{residual};
  if (signature.operands.size() != expected)
    return invalid_argument(fmt::format("linear with bias = {} and residual = {} takes {} operands, not {}", bias,
                                        residual, expected, signature.operands.size()));
  if (!ir::is_floating_point(x.dtype) || x.shape.empty())
    return invalid_argument(fmt::format("linear takes x X[*, K], not {}", x.to_string()));
  if (w.dtype != x.dtype || w.shape.size() != 2 || w.shape[1] != x.shape.back())
    return invalid_argument(fmt::format("linear takes w X[N, K] for x {}, not {}", x.to_string(), w.to_string()));
  ir::Type y = x;
  y.shape.back() = w.shape[0];
  const ir::Type bias_type{x.dtype, {w.shape[0]}};
  if (bias && signature.operands[2] != bias_type)
    return invalid_argument(
        fmt::format("linear takes a bias {}, not {}", bias_type.to_string(), signature.operands[2].to_string()));
  if (residual && signature.operands.back() != y)
    return invalid_argument(
        fmt::format("linear takes a residual {}, not {}", y.to_string(), signature.operands.back().to_string()));
  return std::vector<ir::Type>{y};
}

enum class Way { kNothing, kDot, kOneDnn, kBlocked };

// The maximum number of rows of x for which dot products are used if oneDNN has no kernel. Dot products read w only
// once. The blocked kernel would read w, write it as converted blocks and read these blocks.
constexpr std::int64_t kMostRowsBeforeBlocked = 8;

Way choose(const LinearProblem& p, bool deterministic) {
  if (p.m == 0 || p.n == 0) return Way::kNothing;
  const bool onednn = p.k > 0 && onednn_takes(p.dtype);
  if (deterministic || p.m <= (onednn ? most_rows_for_dot(p) : kMostRowsBeforeBlocked)) return Way::kDot;
  return onednn ? Way::kOneDnn : Way::kBlocked;
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const LinearProblem p = make_linear_problem(args);
  const auto [bias, residual] = optional_operands(args.node);
  switch (choose(p, args.context.limits.deterministic)) {
    case Way::kNothing: break;
    case Way::kDot: return dot_workspace_bytes(p);
    case Way::kOneDnn: return onednn_workspace_bytes(p, bias, residual);
    case Way::kBlocked: return blocked_workspace_bytes(p);
  }
  return std::size_t{0};
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const LinearProblem p = make_linear_problem(args);
  switch (choose(p, args.context.limits.deterministic)) {
    case Way::kNothing: break;
    case Way::kDot: return bind_dot(p);
    case Way::kOneDnn: return bind_onednn(p);
    case Way::kBlocked: return bind_blocked(p);
  }
  return make_cpu_op("linear", [] {});
}

}  // namespace

const ir::OpDecl kLinear{
    .name = "linear",
    .summary = "y = x w^T + bias + residual; x [*, K], w [N, K], bias [N], residual and y [*, N]",
    .operands = {{.name = "x"},
                 {.name = "w"},
                 {.name = "bias", .optional = true},
                 {.name = "residual", .optional = true}},
    .attributes = {{.name = "bias", .kind = ir::AttributeKind::kBool},
                   {.name = "residual", .kind = ir::AttributeKind::kBool}},
    .infer = infer_linear,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kLinearCpu{.op = "linear", .name = "cpu", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
