#include "tessera/ops/vision/layer_norm.h"

#include <cmath>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_layer_norm(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_min_rank(s, 0, "x", 1));
  TRY(constant_cols(s, 0, "x"));
  TRY(expect_type(s, 1, "w", {x.dtype, {x.shape.back()}}));
  TRY(expect_type(s, 2, "b", {x.dtype, {x.shape.back()}}));
  TRY(expect_positive(s, "eps"));
  return std::vector{x};
}

template <class T>
TESSERA_CPU_CLONES void layer_norm_rows(const T* x, const T* w, const T* b, T* y, std::int64_t rows, std::int64_t n,
                                        float eps) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = x + r * n;
    T* to = y + r * n;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < n; ++i) sum += to_float(from[i]);
    const float mean = sum / static_cast<float>(n);
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < n; ++i) squares += (to_float(from[i]) - mean) * (to_float(from[i]) - mean);
    const float scale = 1.0F / std::sqrt(squares / static_cast<float>(n) + eps);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      to[i] = from_float<T>((to_float(from[i]) - mean) * scale * to_float(w[i]) + to_float(b[i]));
  }
}

Result<std::unique_ptr<BoundOp>> bind_layer_norm(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "layer_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* x = args.operands[0].as<T>();
    const T* w = args.operands[1].as<T>();
    const T* b = args.operands[2].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t n = args.operands[0].cols();
    const std::int64_t rows = args.operands[0].rows();
    const float eps = static_cast<float>(args.node.attribute_or("eps", 0.0));
    return make_cpu_op("layer_norm", [=] {
      parallel_rows(rows, 2 * n * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
        layer_norm_rows(x + begin * n, w, b, y + begin * n, end - begin, n, eps);
      });
    });
  });
}

}  // namespace

const ir::OpDecl kLayerNorm{
    .name = "layer_norm",
    .summary = "(x - mean) / sqrt(variance + eps) * w + b over the last dimension: [*, D], [D], [D] -> [*, D]",
    .operands = {{"x"}, {"w"}, {"b"}},
    .attributes = {{"eps", ir::AttributeKind::kDouble, true}},
    .infer = infer_layer_norm,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kLayerNormCpu{.op = "layer_norm", .name = "cpu", .bind = bind_layer_norm};

}  // namespace tessera
