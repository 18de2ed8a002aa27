#include "tessera/ops/rows/norm.h"

#include <fmt/format.h>

#include "tessera/ir/builder.h"
#include "tessera/ops/contract/norm_form.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_norm.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_rms_norm(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_min_rank(s, 0, "x", 1));
  TRY(constant_cols(s, 0, "x"));
  TRY(expect_type(s, 1, "w", {x.dtype, {x.shape.back()}}));
  TRY(expect_positive(s, "eps"));
  return std::vector{x};
}

Result<std::vector<ir::Type>> infer_add_rms_norm(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_min_rank(s, 0, "x", 1));
  TRY(constant_cols(s, 0, "x"));
  TRY(expect_type(s, 1, "residual", x));
  TRY(expect_type(s, 2, "w", {x.dtype, {x.shape.back()}}));
  TRY(expect_positive(s, "eps"));
  return std::vector{x, x};
}

Result<std::vector<ir::Type>> infer_head_norm(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  TRY(expect_rank(s, 1, "w", 1));
  const std::int64_t cols = TRY(constant_cols(s, 0, "x"));
  const std::int64_t head_dim = TRY(constant_cols(s, 1, "w"));
  TRY(expect_type(s, 1, "w", {x.dtype, {head_dim}}));
  if (cols % head_dim != 0)
    return refuse(s, fmt::format("rows of x have {} values, which is no multiple of the {} of w", cols, head_dim));
  TRY(expect_positive(s, "eps"));
  return std::vector{x};
}

Result<std::vector<ir::ValueId>> decompose_add_rms_norm(ir::GraphBuilder& b, const ir::Node& node,
                                                        std::span<const ir::ValueId> operands) {
  const ir::ValueId sum = b.op("add", {operands[0], operands[1]});
  const ir::ValueId normed = b.op("rms_norm", {sum, operands[2]}, node.attributes);
  return std::vector{normed, sum};
}

Result<std::vector<ir::ValueId>> decompose_head_norm(ir::GraphBuilder& b, const ir::Node& node,
                                                     std::span<const ir::ValueId> operands) {
  if (!b.ok()) return std::vector{operands[0]};
  const ir::Shape shape = b.type(operands[0]).shape;
  const std::int64_t head_dim = *b.type(operands[1]).shape[0].constant();
  const std::string rows = shape[0].to_string();
  const std::int64_t cols = *shape[1].constant();
  const ir::ValueId heads =
      b.op("reshape", {operands[0]}, {{"shape", fmt::format("{}, {}, {}", rows, cols / head_dim, head_dim)}});
  const ir::ValueId normed = b.op("rms_norm", {heads, operands[1]}, node.attributes);
  return std::vector{b.op("reshape", {normed}, {{"shape", fmt::format("{}, {}", rows, cols)}})};
}

template <class T>
TESSERA_INLINE void normalise_row(const T* x, const T* w, T* y, std::int64_t n, float eps, NormForm form) {
  const float scale = rms_scale(x, n, eps);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_float<T>(normalised(x[i], w[i], scale, form));
}

template <class T>
TESSERA_CPU_CLONES void rms_norm_rows(const T* x, const T* w, T* y, std::int64_t rows, std::int64_t n, float eps,
                                      NormForm form) {
  for (std::int64_t r = 0; r < rows; ++r) normalise_row(x + r * n, w, y + r * n, n, eps, form);
}

template <class T>
TESSERA_CPU_CLONES void add_rms_norm_rows(const T* x, const T* residual, const T* w, T* y, T* sum, std::int64_t rows,
                                          std::int64_t n, float eps, NormForm form) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* xr = x + r * n;
    const T* residual_r = residual + r * n;
    T* sum_r = sum + r * n;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) sum_r[i] = from_float<T>(to_float(xr[i]) + to_float(residual_r[i]));
    normalise_row(sum_r, w, y + r * n, n, eps, form);
  }
}

// Binds rms_norm or head_norm, which normalise groups of w.size() neighbouring values. `name` is a string literal,
// because launches keep the pointer.
Result<std::unique_ptr<BoundOp>> bind_norm(const BindArgs& args, const char* name) {
  return dispatch_dtype(args.operands[0].dtype, name, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* x = args.operands[0].as<T>();
    const T* w = args.operands[1].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t n = args.operands[1].cols();
    const std::int64_t rows = args.operands[0].elements() / n;
    const float eps = static_cast<float>(args.node.attribute_or("eps", 0.0));
    const NormForm form = norm_form(args.node);
    return make_cpu_op(name, [=] {
      parallel_rows(rows, 2 * n * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
        rms_norm_rows(x + begin * n, w, y + begin * n, end - begin, n, eps, form);
      });
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_rms_norm(const BindArgs& args) { return bind_norm(args, "rms_norm"); }
Result<std::unique_ptr<BoundOp>> bind_head_norm(const BindArgs& args) { return bind_norm(args, "head_norm"); }

Result<std::unique_ptr<BoundOp>> bind_add_rms_norm(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "add_rms_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* x = args.operands[0].as<T>();
    const T* residual = args.operands[1].as<T>();
    const T* w = args.operands[2].as<T>();
    T* y = args.results[0].as<T>();
    T* sum = args.results[1].as<T>();
    const std::int64_t n = args.operands[2].cols();
    const std::int64_t rows = args.operands[0].rows();
    const float eps = static_cast<float>(args.node.attribute_or("eps", 0.0));
    const NormForm form = norm_form(args.node);
    return make_cpu_op("add_rms_norm", [=] {
      parallel_rows(rows, 4 * n * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t at = begin * n;
        add_rms_norm_rows(x + at, residual + at, w, y + at, sum + at, end - begin, n, eps, form);
      });
    });
  });
}

}  // namespace

const ir::OpDecl kRmsNorm{
    .name = "rms_norm",
    .summary = "x / sqrt(mean(x^2) + eps) * w over the last dimension: [*, D], [D] -> [*, D]",
    .operands = {{"x"}, {"w"}},
    .attributes = {{"eps", ir::AttributeKind::kDouble, true},
                   {"round_once", ir::AttributeKind::kBool},
                   {"unit_offset", ir::AttributeKind::kBool}},
    .infer = infer_rms_norm,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kAddRmsNorm{
    .name = "add_rms_norm",
    .summary = "sum = x + residual, normed = rms_norm(sum, w): [*, D], [*, D], [D] -> normed [*, D], sum [*, D]",
    .operands = {{"x"}, {"residual"}, {"w"}},
    .attributes = {{"eps", ir::AttributeKind::kDouble, true},
                   {"round_once", ir::AttributeKind::kBool},
                   {"unit_offset", ir::AttributeKind::kBool}},
    .infer = infer_add_rms_norm,
    .rows = ir::RowUse::kByRow,
    .decompose = decompose_add_rms_norm,
};

const ir::OpDecl kHeadNorm{
    .name = "head_norm",
    .summary = "rms_norm of each head's D values: [T, H*D], [D] -> [T, H*D]",
    .operands = {{"x"}, {"w"}},
    .attributes = {{"eps", ir::AttributeKind::kDouble, true},
                   {"round_once", ir::AttributeKind::kBool},
                   {"unit_offset", ir::AttributeKind::kBool}},
    .infer = infer_head_norm,
    .rows = ir::RowUse::kByRow,
    .decompose = decompose_head_norm,
};

const KernelDef kRmsNormCpu{.op = "rms_norm", .name = "cpu", .bind = bind_rms_norm};

const KernelDef kAddRmsNormCpu{.op = "add_rms_norm", .name = "cpu", .bind = bind_add_rms_norm};

const KernelDef kHeadNormCpu{.op = "head_norm", .name = "cpu", .bind = bind_head_norm};

}  // namespace tessera
