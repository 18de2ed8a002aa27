#include "tessera/ops/vision/axial_rotary.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_axial_table(const ir::OpSignature& s) {
  const ir::Type& positions = s.operands[0];
  TRY(expect_rank(s, 0, "positions", 2));
  TRY(expect_type(s, 0, "positions", {ir::DType::kInt32, {positions.shape[0], 2}}));
  TRY(expect_rank(s, 1, "inv_freq", 1));
  const std::int64_t frequencies = TRY(constant_cols(s, 1, "inv_freq"));
  TRY(expect_type(s, 1, "inv_freq", {ir::DType::kFloat32, {frequencies}}));
  return std::vector{ir::Type{ir::DType::kFloat32, {positions.shape[0], 4 * frequencies}}};
}

Result<std::vector<ir::Type>> infer_rotate_heads(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  TRY(expect_rank(s, 1, "table", 2));
  const std::int64_t cols = TRY(constant_cols(s, 0, "x"));
  const std::int64_t head_dim = TRY(constant_cols(s, 1, "table"));
  TRY(expect_type(s, 1, "table", {ir::DType::kFloat32, {x.shape[0], head_dim}}));
  const std::int64_t heads = s.node.attribute_or("heads", std::int64_t{0});
  if (head_dim % 2 != 0) return refuse(s, fmt::format("the table has {} columns; it must be even", head_dim));
  if (heads <= 0 || heads > cols / head_dim)
    return refuse(s, fmt::format("heads = {}; rows of {} values have 1 to {} heads of {}", heads, cols, cols / head_dim,
                                 head_dim));
  return std::vector<ir::Type>{};
}

Result<std::unique_ptr<BoundOp>> bind_axial_table(const BindArgs& args) {
  const std::int32_t* positions = args.operands[0].as<std::int32_t>();
  const float* inv_freq = args.operands[1].as<float>();
  float* table = args.results[0].as<float>();
  const std::int64_t rows = args.operands[0].dim(0);
  const std::int64_t frequencies = args.operands[1].dim(0);
  return make_cpu_op("axial_table", [=] {
    parallel_rows(rows, 64 * frequencies, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        for (std::int64_t i = 0; i < 2 * frequencies; ++i) {
          const float angle = static_cast<float>(positions[2 * r + i / frequencies]) * inv_freq[i % frequencies];
          table[r * 4 * frequencies + i] = std::cos(angle);
          table[r * 4 * frequencies + 2 * frequencies + i] = std::sin(angle);
        }
    });
  });
}

template <class T>
TESSERA_CPU_CLONES void rotate_rows(T* x, const float* table, std::int64_t rows, std::int64_t cols, std::int64_t heads,
                                    std::int64_t half) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* cosines = table + r * 2 * half;
    const float* sines = cosines + half;
    for (std::int64_t h = 0; h < heads; ++h) {
      T* low = x + r * cols + h * 2 * half;
      T* high = low + half;
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = to_float(low[i]);
        const float b = to_float(high[i]);
        low[i] = from_float<T>(a * cosines[i] - b * sines[i]);
        high[i] = from_float<T>(b * cosines[i] + a * sines[i]);
      }
    }
  }
}

Result<std::unique_ptr<BoundOp>> bind_rotate_heads(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "rotate_heads", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    T* x = args.operands[0].as<T>();
    const float* table = args.operands[1].as<float>();
    const std::int64_t rows = args.operands[0].dim(0);
    const std::int64_t cols = args.operands[0].dim(1);
    const std::int64_t head_dim = args.operands[1].dim(1);
    const std::int64_t heads = args.node.attribute_or("heads", std::int64_t{0});
    return make_cpu_op("rotate_heads", [=] {
      const std::int64_t row_bytes = 2 * heads * head_dim * static_cast<std::int64_t>(sizeof(T));
      parallel_rows(rows, row_bytes, [&](std::int64_t begin, std::int64_t end) {
        rotate_rows(x + begin * cols, table + begin * head_dim, end - begin, cols, heads, head_dim / 2);
      });
    });
  });
}

}  // namespace

const ir::OpDecl kAxialTable{
    .name = "axial_table",
    .summary = "cosines, then sines, of row * f and column * f: i32[S, 2], f32[F] -> f32[S, 4F]",
    .operands = {{"positions"}, {"inv_freq"}},
    .attributes = {},
    .infer = infer_axial_table,
};

const KernelDef kAxialTableCpu{.op = "axial_table", .name = "cpu", .bind = bind_axial_table};

const ir::OpDecl kRotateHeads{
    .name = "rotate_heads",
    .summary = "rotates the first heads of each row in place: [S, N], f32[S, D]",
    .operands = {{"x", /*mutated=*/true}, {"table"}},
    .attributes = {{"heads", ir::AttributeKind::kInt, true}},
    .infer = infer_rotate_heads,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kRotateHeadsCpu{.op = "rotate_heads", .name = "cpu", .bind = bind_rotate_heads};

}  // namespace tessera
