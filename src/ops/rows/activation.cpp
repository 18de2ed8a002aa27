#include "tessera/ops/rows/activation.h"

#include <fmt/format.h>

#include "tessera/ir/builder.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_activation.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_gated(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_min_rank(s, 0, "x", 1));
  const std::int64_t cols = TRY(constant_cols(s, 0, "x"));
  if (cols % 2 != 0) return refuse(s, fmt::format("rows of x have {} values; gate and up are halves of them", cols));
  ir::Type half = x;
  half.shape.back() = cols / 2;
  return std::vector{half};
}

Result<std::vector<ir::Type>> infer_unary(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "x"));
  return std::vector{s.operands[0]};
}

Result<std::vector<ir::Type>> infer_softcap(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_positive(s, "cap"));
  return std::vector{s.operands[0]};
}

Result<std::vector<ir::ValueId>> decompose_gated(ir::GraphBuilder& b, const ir::Node& node, std::string_view activation,
                                                 ir::ValueId x) {
  if (!b.ok()) return std::vector{x};
  const std::int64_t half = *b.type(x).shape.back().constant() / 2;
  const std::vector<ir::ValueId> parts = b.multi_op("split", {x}, {{"sizes", std::vector<std::int64_t>{half, half}}});
  if (!b.ok()) return std::vector{x};
  const ir::ValueId gate = b.op(activation, {parts[0]}, node.attributes);
  return std::vector{b.op("mul", {gate, parts[1]})};
}

Result<std::vector<ir::ValueId>> decompose_silu_mul(ir::GraphBuilder& b, const ir::Node& node,
                                                    std::span<const ir::ValueId> operands) {
  return decompose_gated(b, node, "silu", operands[0]);
}

Result<std::vector<ir::ValueId>> decompose_gelu_mul(ir::GraphBuilder& b, const ir::Node& node,
                                                    std::span<const ir::ValueId> operands) {
  return decompose_gated(b, node, "gelu", operands[0]);
}

template <class T, class F>
TESSERA_CPU_CLONES void gated_rows(const T* x, T* y, std::int64_t rows, std::int64_t n, F activation) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* gate = x + r * 2 * n;
    const T* up = gate + n;
    T* out = y + r * n;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = from_float<T>(to_float(from_float<T>(activation(to_float(gate[i])))) * to_float(up[i]));
  }
}

template <class T, class F>
TESSERA_CPU_CLONES void unary_run(const T* x, T* y, std::int64_t n, F activation) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_float<T>(activation(to_float(x[i])));
}

// Binds a gated activation. `name` is a string literal, because launches keep the pointer.
template <class F>
Result<std::unique_ptr<BoundOp>> bind_gated(const BindArgs& args, const char* name, F activation) {
  return dispatch_dtype(args.operands[0].dtype, name, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* x = args.operands[0].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t rows = args.results[0].rows();
    const std::int64_t n = args.results[0].cols();
    return make_cpu_op(name, [=] {
      parallel_rows(rows, 3 * n * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
        gated_rows(x + begin * 2 * n, y + begin * n, end - begin, n, activation);
      });
    });
  });
}

template <class F>
Result<std::unique_ptr<BoundOp>> bind_unary(const BindArgs& args, const char* name, F activation) {
  return dispatch_dtype(args.operands[0].dtype, name, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* x = args.operands[0].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t n = args.operands[0].elements();
    return make_cpu_op(name, [=] {
      parallel_rows(n, 2 * sizeof(T), [&](std::int64_t begin, std::int64_t end) {
        unary_run(x + begin, y + begin, end - begin, activation);
      });
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_silu_mul(const BindArgs& args) { return bind_gated(args, "silu_mul", Silu{}); }
Result<std::unique_ptr<BoundOp>> bind_silu(const BindArgs& args) { return bind_unary(args, "silu", Silu{}); }

Result<std::unique_ptr<BoundOp>> bind_gelu_mul(const BindArgs& args) {
  if (args.node.attribute_or("tanh", true)) return bind_gated(args, "gelu_mul", GeluTanh{});
  return bind_gated(args, "gelu_mul", GeluErf{});
}

Result<std::unique_ptr<BoundOp>> bind_gelu(const BindArgs& args) {
  if (args.node.attribute_or("tanh", true)) return bind_unary(args, "gelu", GeluTanh{});
  return bind_unary(args, "gelu", GeluErf{});
}

Result<std::unique_ptr<BoundOp>> bind_quick_gelu(const BindArgs& args) {
  return bind_unary(args, "quick_gelu", QuickGelu{});
}

Result<std::unique_ptr<BoundOp>> bind_softcap(const BindArgs& args) {
  return bind_unary(args, "softcap", Softcap{static_cast<float>(args.node.attribute_or("cap", 1.0))});
}

}  // namespace

const ir::OpDecl kSiluMul{
    .name = "silu_mul",
    .summary = "silu(x[:I]) * x[I:] over the last dimension: [*, 2I] -> [*, I]",
    .operands = {{"x"}},
    .attributes = {},
    .infer = infer_gated,
    .rows = ir::RowUse::kByRow,
    .decompose = decompose_silu_mul,
};

const ir::OpDecl kGeluMul{
    .name = "gelu_mul",
    .summary = "gelu(x[:I]) * x[I:] over the last dimension, gelu by tanh or by erf: [*, 2I] -> [*, I]",
    .operands = {{"x"}},
    .attributes = {{"tanh", ir::AttributeKind::kBool}},
    .infer = infer_gated,
    .rows = ir::RowUse::kByRow,
    .decompose = decompose_gelu_mul,
};

const ir::OpDecl kSilu{
    .name = "silu",
    .summary = "x / (1 + exp(-x)): [*] -> [*]",
    .operands = {{"x"}},
    .attributes = {},
    .infer = infer_unary,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kGelu{
    .name = "gelu",
    .summary = "x * Phi(x), by tanh or by erf: [*] -> [*]",
    .operands = {{"x"}},
    .attributes = {{"tanh", ir::AttributeKind::kBool}},
    .infer = infer_unary,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kQuickGelu{
    .name = "quick_gelu",
    .summary = "x / (1 + exp(-1.702 x)): [*] -> [*]",
    .operands = {{"x"}},
    .attributes = {},
    .infer = infer_unary,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kSoftcap{
    .name = "softcap",
    .summary = "cap * tanh(x / cap): [*] -> [*]",
    .operands = {{"x"}},
    .attributes = {{"cap", ir::AttributeKind::kDouble, true}},
    .infer = infer_softcap,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kSiluMulCpu{.op = "silu_mul", .name = "cpu", .bind = bind_silu_mul};

const KernelDef kGeluMulCpu{.op = "gelu_mul", .name = "cpu", .bind = bind_gelu_mul};

const KernelDef kSiluCpu{.op = "silu", .name = "cpu", .bind = bind_silu};

const KernelDef kGeluCpu{.op = "gelu", .name = "cpu", .bind = bind_gelu};

const KernelDef kQuickGeluCpu{.op = "quick_gelu", .name = "cpu", .bind = bind_quick_gelu};

const KernelDef kSoftcapCpu{.op = "softcap", .name = "cpu", .bind = bind_softcap};

}  // namespace tessera
