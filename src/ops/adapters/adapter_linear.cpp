#include "tessera/ops/adapters/adapter_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/adapters/adapter_dot.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

constexpr std::int64_t kAddColumns = 256;  // columns of y that one task computes

const std::vector<std::int64_t>* ints(const ir::Node& node, std::string_view name) {
  const ir::Attribute* attribute = node.find_attribute(name);
  return attribute == nullptr ? nullptr : std::get_if<std::vector<std::int64_t>>(attribute);
}

// Checks the operand `ranks` or `scales`, and returns the number of modules. The operand must have an entry for each
// slot and module.
Result<std::int64_t> check_table(const ir::OpSignature& s, std::size_t i, std::string_view name, ir::DType dtype,
                                 const ir::Dim& num_slots) {
  TRY(expect_rank(s, i, name, 2));
  const std::int64_t modules = TRY(constant_cols(s, i, name));
  TRY(expect_type(s, i, name, {dtype, {num_slots, modules}}));
  return modules;
}

Result<std::vector<ir::Type>> infer_shrink(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  TRY(constant_cols(s, 0, "x"));
  TRY(expect_rank(s, 1, "a", 3));
  const ir::Type& x = s.operands[0];
  const ir::Type& a = s.operands[1];
  TRY(expect_type(s, 1, "a", {x.dtype, {a.shape[0], a.shape[1], x.shape[1]}}));
  const std::int64_t modules = TRY(check_table(s, 2, "ranks", ir::DType::kInt32, a.shape[0]));
  const std::int64_t rows = a.shape[1].constant().value_or(0);
  if (rows < 1 || rows % modules != 0)
    return refuse(s, fmt::format("a has {} rows for {} modules; each has the same number", rows, modules));
  TRY(expect_type(s, 3, "rows", {ir::DType::kInt32, {kAdapterRowLists, x.shape[0]}}));
  return std::vector{ir::Type{ir::DType::kFloat32, {x.shape[0], a.shape[1]}}};
}

Status check_ranges(const ir::OpSignature& s, std::int64_t cols, std::int64_t modules) {
  const std::vector<std::int64_t>* rows = ints(s.node, "rows");
  const std::vector<std::int64_t>* of = ints(s.node, "modules");
  if (rows == nullptr || of == nullptr || rows->empty() || rows->size() != of->size() ||
      rows->size() > kMaxAdapterRanges)
    return refuse(s, fmt::format("rows and modules have an entry for each of 1 to {} ranges", kMaxAdapterRanges));
  if (std::ranges::any_of(*rows, [](std::int64_t count) { return count < 1; }) ||
      std::accumulate(rows->begin(), rows->end(), std::int64_t{0}) != cols)
    return refuse(s, fmt::format("rows must be above 0 and add up to the {} columns of y", cols));
  if (std::ranges::any_of(*of, [&](std::int64_t n) { return n < 0 || n >= modules; }))
    return refuse(s, fmt::format("modules must be 0 to {}", modules - 1));
  return ok_status();
}

Result<std::vector<ir::Type>> infer_add(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "y"));
  TRY(expect_rank(s, 0, "y", 2));
  const std::int64_t cols = TRY(constant_cols(s, 0, "y"));
  const ir::Type& y = s.operands[0];
  TRY(expect_rank(s, 2, "b", 3));
  const ir::Type& b = s.operands[2];
  TRY(expect_type(s, 2, "b", {y.dtype, {b.shape[0], b.shape[1], y.shape[1]}}));
  const std::int64_t modules = TRY(check_table(s, 3, "ranks", ir::DType::kInt32, b.shape[0]));
  TRY(expect_type(s, 4, "scales", {ir::DType::kFloat32, {b.shape[0], modules}}));
  const std::int64_t rank = b.shape[1].constant().value_or(0);
  TRY(expect_type(s, 1, "t", {ir::DType::kFloat32, {y.shape[0], modules * rank}}));
  TRY(expect_type(s, 5, "rows", {ir::DType::kInt32, {kAdapterRowLists, y.shape[0]}}));
  TRY(check_ranges(s, cols, modules));
  return std::vector<ir::Type>();
}

// Adds scale · t · b to at most kAddColumns columns of one module. t is [rank]. Rows of b are `stride` elements apart.
template <class T>
TESSERA_CPU_CLONES void add_columns(T* y, const float* t, const T* b, std::int64_t stride, std::int32_t rank,
                                    float scale, std::int64_t columns) {
  float sums[kAddColumns] = {};
  for (std::int32_t r = 0; r < rank; ++r) {
    const float factor = t[r];
    const T* row = b + r * stride;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) sums[c] += factor * to_float(row[c]);
  }
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) y[c] = from_float<T>(to_float(y[c]) + scale * sums[c]);
}

template <class T>
void shrink_value(const AdapterShrinkArgs& in, std::int64_t item) {
  const std::int64_t values = std::int64_t{in.modules} * in.rank;
  const std::int64_t row = item / values;
  const auto n = static_cast<std::int32_t>(item % values);
  const std::int32_t slot = in.table.slots[row];
  const bool counts = slot >= 0 && n % in.rank < in.ranks[slot * in.modules + n / in.rank];
  const T* x = static_cast<const T*>(in.x) + row * in.cols;
  in.t[item] = counts ? adapter_dot(x, static_cast<const T*>(in.a) + (slot * values + n) * in.cols, in.cols) : 0.0F;
}

template <class T>
void add_chunk(const AdapterAddArgs& in, std::int64_t row, std::int64_t first) {
  const std::int32_t slot = in.table.slots[row];
  if (slot < 0) return;
  const std::int64_t last = std::min(first + kAddColumns, in.cols);
  std::int64_t begin = first;
  for (std::int32_t i = 0; i < in.ranges.count && begin < last; ++i) {
    const std::int64_t end = std::min<std::int64_t>(in.ranges.ends[i], last);
    if (end <= begin) continue;
    const std::int32_t module = in.ranges.modules[i];
    const std::int32_t at = slot * in.modules + module;
    if (in.ranks[at] > 0)
      add_columns(static_cast<T*>(in.y) + row * in.cols + begin, in.t + (row * in.modules + module) * in.rank,
                  static_cast<const T*>(in.b) + std::int64_t{slot} * in.rank * in.cols + begin, in.cols, in.ranks[at],
                  in.scales[at], end - begin);
    begin = end;
  }
}

Result<std::unique_ptr<BoundOp>> bind_shrink(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "adapter_shrink", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const AdapterShrinkArgs in = adapter_shrink_args(args);
    return make_cpu_op("adapter_shrink", [in] {
      parallel_rows(in.rows * in.modules * in.rank, 2 * in.cols * static_cast<std::int64_t>(sizeof(T)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t item = begin; item < end; ++item) shrink_value<T>(in, item);
                    });
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_add(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "adapter_add", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const AdapterAddArgs in = adapter_add_args(args);
    const std::int64_t chunks = ceil_div(in.cols, kAddColumns);
    return make_cpu_op("adapter_add", [in, chunks] {
      parallel_rows(in.rows * chunks, (in.rank + 2) * kAddColumns * static_cast<std::int64_t>(sizeof(T)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t item = begin; item < end; ++item)
                        add_chunk<T>(in, item / chunks, item % chunks * kAddColumns);
                    });
    });
  });
}

}  // namespace

AdapterRanges adapter_ranges(const ir::Node& node) {
  const std::vector<std::int64_t>& rows = *ints(node, "rows");
  const std::vector<std::int64_t>& modules = *ints(node, "modules");
  AdapterRanges ranges;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    end += rows[i];
    ranges.ends[i] = static_cast<std::int32_t>(end);
    ranges.modules[i] = static_cast<std::int32_t>(modules[i]);
  }
  ranges.count = static_cast<std::int32_t>(rows.size());
  return ranges;
}

AdapterProductArgs AdapterProductArgs::of(const TensorView& x, const TensorView& a, const TensorView& ranks,
                                          const TensorView& rows) {
  const auto modules = static_cast<std::int32_t>(ranks.cols());
  return {.x = x.data.raw(),
          .a = a.data.raw(),
          .ranks = ranks.as<std::int32_t>(),
          .table = AdapterRows::of(rows.as<std::int32_t>(), x.dim(0)),
          .rows = x.dim(0),
          .cols = x.cols(),
          .num_slots = static_cast<std::int32_t>(a.dim(0)),
          .modules = modules,
          .rank = static_cast<std::int32_t>(a.dim(1)) / modules};
}

AdapterShrinkArgs adapter_shrink_args(const BindArgs& args) {
  return {AdapterProductArgs::of(args.operands[0], args.operands[1], args.operands[2], args.operands[3]),
          args.results[0].as<float>()};
}

AdapterAddArgs adapter_add_args(const BindArgs& args) {
  const TensorView& b = args.operands[2];
  return {.y = args.operands[0].data.raw(),
          .t = args.operands[1].as<float>(),
          .b = b.data.raw(),
          .ranks = args.operands[3].as<std::int32_t>(),
          .scales = args.operands[4].as<float>(),
          .table = AdapterRows::of(args.operands[5].as<std::int32_t>(), args.operands[0].dim(0)),
          .rows = args.operands[0].dim(0),
          .cols = args.operands[0].cols(),
          .num_slots = static_cast<std::int32_t>(b.dim(0)),
          .modules = static_cast<std::int32_t>(args.operands[3].cols()),
          .rank = static_cast<std::int32_t>(b.dim(1)),
          .ranges = adapter_ranges(args.node)};
}

const ir::OpDecl kAdapterShrink{
    .name = "adapter_shrink",
    .summary = "x . aT of the row's slot: [T, K], [S, N*R, K], i32[S, N], i32[5, T] -> f32[T, N*R]",
    .operands = {{"x"}, {"a"}, {"ranks"}, {"rows"}},
    .attributes = {},
    .infer = infer_shrink,
};

const ir::OpDecl kAdapterAdd{
    .name = "adapter_add",
    .summary =
        "y += scale * t . b of the row's slot: mut [T, M], f32[T, N*R], [S, R, M], i32[S, N], f32[S, N], i32[5, T]",
    .operands = {{"y", true}, {"t"}, {"b"}, {"ranks"}, {"scales"}, {"rows"}},
    .attributes = {{"rows", ir::AttributeKind::kInts, true}, {"modules", ir::AttributeKind::kInts, true}},
    .infer = infer_add,
};

const KernelDef kAdapterShrinkCpu{.op = "adapter_shrink", .name = "cpu", .bind = bind_shrink};
const KernelDef kAdapterAddCpu{.op = "adapter_add", .name = "cpu", .bind = bind_add};

}  // namespace tessera
