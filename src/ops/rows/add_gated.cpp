#include "tessera/ops/rows/add_gated.h"

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "a"));
  TRY(expect_rank(s, 0, "a", 2));
  TRY(constant_cols(s, 0, "a"));
  const ir::Type& a = s.operands[0];
  TRY(expect_type(s, 1, "x", a));
  TRY(expect_type(s, 2, "gate", {a.dtype, {a.shape[0], 1}}));
  return std::vector{a};
}

template <class T>
TESSERA_CPU_CLONES void run_row(const T* a, const T* x, float gate, T* y, std::int64_t n) {
  const float factor = sigmoid(gate);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_float<T>(to_float(a[i]) + to_float(x[i]) * factor);
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "add_gated", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* a = args.operands[0].as<T>();
    const T* x = args.operands[1].as<T>();
    const T* gate = args.operands[2].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t rows = args.operands[0].dim(0);
    const std::int64_t n = args.operands[0].cols();
    return make_cpu_op("add_gated", [=] {
      parallel_rows(rows, 3 * n * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) run_row(a + r * n, x + r * n, to_float(gate[r]), y + r * n, n);
      });
    });
  });
}

}  // namespace

const ir::OpDecl kAddGated{
    .name = "add_gated",
    .summary = "a + x * sigmoid(gate), one gate a row: [T, N], [T, N], [T, 1] -> [T, N]",
    .operands = {{"a"}, {"x"}, {"gate"}},
    .attributes = {},
    .infer = infer,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kAddGatedCpu{.op = "add_gated", .name = "cpu", .bind = bind};

}  // namespace tessera
