#include "tessera/ops/recurrent/output_gate.h"

#include <fmt/format.h>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_norm.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_gated_norm(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  TRY(expect_rank(s, 1, "z", 2));
  TRY(expect_rank(s, 2, "w", 1));
  const std::int64_t cols = TRY(constant_cols(s, 0, "x"));
  const std::int64_t width = TRY(constant_cols(s, 1, "z"));
  const std::int64_t head_dim = TRY(constant_cols(s, 2, "w"));
  TRY(expect_type(s, 1, "z", {x.dtype, {x.shape[0], width}}));
  TRY(expect_type(s, 2, "w", {ir::DType::kFloat32, {head_dim}}));
  if (cols % head_dim != 0)
    return refuse(s, fmt::format("rows of x have {} values, which is no multiple of the {} of w", cols, head_dim));
  const std::int64_t column = s.node.attribute_or("column", std::int64_t{0});
  if (column < 0 || column > width - cols)
    return refuse(s, fmt::format("column is {}; z has {} columns, of which {} are read", column, width, cols));
  TRY(expect_positive(s, "eps"));
  return std::vector{x};
}

Result<std::vector<ir::Type>> infer_sigmoid_gate(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_type(s, 1, "gate", s.operands[0]));
  return std::vector{s.operands[0]};
}

template <class T>
struct GatedNorm {
  const T* x;      // [rows, cols]
  const T* z;      // [rows, width]; points to column `column` (the attribute) of the first row
  const float* w;  // [head_dim]
  T* y;            // [rows, cols]
  std::int64_t cols;
  std::int64_t width;
  std::int64_t head_dim;
  float eps;
};

template <class T>
TESSERA_CPU_CLONES void gated_norm_rows(const GatedNorm<T>& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t head = 0; head < p.cols; head += p.head_dim) {
      const T* x = p.x + t * p.cols + head;
      const T* z = p.z + t * p.width + head;
      T* y = p.y + t * p.cols + head;
      const float scale = rms_scale(x, p.head_dim, p.eps);
#pragma omp simd
      for (std::int64_t i = 0; i < p.head_dim; ++i) {
        const float gate = to_float(z[i]);
        y[i] = from_float<T>(to_float(from_float<T>(to_float(x[i]) * scale)) * p.w[i] * (gate * sigmoid(gate)));
      }
    }
  }
}

template <class T>
TESSERA_CPU_CLONES void sigmoid_gate_run(const T* x, const T* gate, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = from_float<T>(to_float(x[i]) * to_float(from_float<T>(sigmoid(to_float(gate[i])))));
}

Result<std::unique_ptr<BoundOp>> bind_gated_norm(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "gated_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const GatedNorm<T> p{.x = args.operands[0].as<T>(),
                         .z = args.operands[1].as<T>() + args.node.attribute_or("column", std::int64_t{0}),
                         .w = args.operands[2].as<float>(),
                         .y = args.results[0].as<T>(),
                         .cols = args.operands[0].cols(),
                         .width = args.operands[1].cols(),
                         .head_dim = args.operands[2].cols(),
                         .eps = static_cast<float>(args.node.attribute_or("eps", 0.0))};
    const std::int64_t rows = args.operands[0].rows();
    return make_cpu_op("gated_norm", [=] {
      parallel_rows(rows, 3 * p.cols * static_cast<std::int64_t>(sizeof(T)),
                    [&](std::int64_t begin, std::int64_t end) { gated_norm_rows(p, begin, end); });
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_sigmoid_gate(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "sigmoid_gate", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* x = args.operands[0].as<T>();
    const T* gate = args.operands[1].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t n = args.operands[0].elements();
    return make_cpu_op("sigmoid_gate", [=] {
      parallel_rows(n, 3 * sizeof(T), [&](std::int64_t begin, std::int64_t end) {
        sigmoid_gate_run(x + begin, gate + begin, y + begin, end - begin);
      });
    });
  });
}

}  // namespace

const ir::OpDecl kGatedNorm{
    .name = "gated_norm",
    .summary = "rms_norm of each head's D values, times silu(z): [T, H*D], [T, W], [D] -> [T, H*D]",
    .operands = {{"x"}, {"z"}, {"w"}},
    .attributes = {{"eps", ir::AttributeKind::kDouble, true}, {"column", ir::AttributeKind::kInt}},
    .infer = infer_gated_norm,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kSigmoidGate{
    .name = "sigmoid_gate",
    .summary = "x * sigmoid(gate): [*], [*] -> [*]",
    .operands = {{"x"}, {"gate"}},
    .attributes = {},
    .infer = infer_sigmoid_gate,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kGatedNormCpu{.op = "gated_norm", .name = "cpu", .bind = bind_gated_norm};

const KernelDef kSigmoidGateCpu{.op = "sigmoid_gate", .name = "cpu", .bind = bind_sigmoid_gate};

}  // namespace tessera
