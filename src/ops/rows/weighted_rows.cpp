#include "tessera/ops/rows/weighted_rows.h"

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_weighted_rows(const ir::OpSignature& s) {
  const ir::Type& table = s.operands[0];
  const ir::Type& rows = s.operands[1];
  TRY(expect_floating(s, 0, "table"));
  TRY(expect_rank(s, 0, "table", 2));
  TRY(constant_cols(s, 0, "table"));
  TRY(expect_rank(s, 1, "rows", 2));
  TRY(constant_cols(s, 1, "rows"));
  TRY(expect_type(s, 1, "rows", {ir::DType::kInt32, rows.shape}));
  TRY(expect_type(s, 2, "weights", {ir::DType::kFloat32, rows.shape}));
  return std::vector{ir::Type{table.dtype, {rows.shape[0], table.shape[1]}}};
}

template <class T>
struct Problem {
  const T* table;            // [table_rows, n]
  const std::int32_t* rows;  // [count, terms]
  const float* weights;      // [count, terms]
  T* out;                    // [count, n]
  std::int64_t table_rows;
  std::int64_t count;
  std::int64_t terms;
  std::int64_t n;
};

template <class T>
TESSERA_CPU_CLONES void sum_rows(const Problem<T>& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r)
    for (std::int64_t i = 0; i < p.n; ++i) {
      float sum = 0;
      for (std::int64_t k = 0; k < p.terms; ++k) {
        const std::int64_t row = p.rows[r * p.terms + k];
        if (row < 0 || row >= p.table_rows) continue;
        const float weight = to_float(from_float<T>(p.weights[r * p.terms + k]));
        sum += to_float(from_float<T>(to_float(p.table[row * p.n + i]) * weight));
      }
      p.out[r * p.n + i] = from_float<T>(sum);
    }
}

Result<std::unique_ptr<BoundOp>> bind_weighted_rows(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "weighted_rows", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const Problem<T> p{.table = args.operands[0].as<T>(),
                       .rows = args.operands[1].as<std::int32_t>(),
                       .weights = args.operands[2].as<float>(),
                       .out = args.results[0].as<T>(),
                       .table_rows = args.operands[0].dim(0),
                       .count = args.operands[1].dim(0),
                       .terms = args.operands[1].dim(1),
                       .n = args.operands[0].dim(1)};
    return make_cpu_op("weighted_rows", [p] {
      parallel_rows(p.count, (p.terms + 1) * p.n * static_cast<std::int64_t>(sizeof(T)),
                    [&](std::int64_t begin, std::int64_t end) { sum_rows(p, begin, end); });
    });
  });
}

}  // namespace

const ir::OpDecl kWeightedRows{
    .name = "weighted_rows",
    .summary = "sums of table rows times weights: [V, H], i32[S, K], f32[S, K] -> [S, H]",
    .operands = {{"table"}, {"rows"}, {"weights"}},
    .attributes = {},
    .infer = infer_weighted_rows,
};

const KernelDef kWeightedRowsCpu{.op = "weighted_rows", .name = "cpu", .bind = bind_weighted_rows};

}  // namespace tessera
