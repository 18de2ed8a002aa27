#include "tessera/ops/embedding/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/embedding/block_table.h"
#include "tessera/ops/embedding/embedding_args.h"

namespace tessera {
namespace {

Status check_slice(const ir::OpSignature& s) {
  const std::optional<std::int64_t> rows = s.operands[1].shape[0].constant();
  if (!rows) return refuse(s, fmt::format("table is {}; its rows must be a number", s.operands[1].to_string()));
  const std::int64_t first = s.node.attribute_or("first_row", std::int64_t{0});
  const std::int64_t all = s.node.attribute_or("table_rows", *rows);
  constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max();
  if (first >= 0 && all >= *rows && all <= kMostRows && first <= all - *rows) return ok_status();
  return refuse(
      s, fmt::format("first_row = {} and table_rows = {}; the {} rows must be a range of them", first, all, *rows));
}

Result<std::vector<ir::Type>> infer_embedding(const ir::OpSignature& s) {
  const ir::Type& ids = s.operands[0];
  TRY(expect_rank(s, 0, "ids", 1));
  TRY(expect_type(s, 0, "ids", {ir::DType::kInt32, ids.shape}));
  const ir::Type table = TRY(numbers_of_table(s, 1));
  const std::int64_t cols = table.shape[1].constant().value_or(0);
  if (s.node.find_attribute("scale")) TRY(expect_positive(s, "scale"));
  TRY(check_slice(s));
  if (s.operands.size() == 3) return refuse(s, "it takes rows and given, or neither");
  if (s.operands.size() > 3) {
    TRY(expect_type(s, 2, "rows", ids));
    TRY(expect_rank(s, 3, "given", 2));
    const ir::Type& given = s.operands[3];
    const std::int64_t given_cols = TRY(constant_cols(s, 3, "given"));
    if (given_cols % cols != 0 || given.dtype != table.dtype)
      return refuse(s, fmt::format("given is {}; it must be {} with {} columns, or a multiple of them",
                                   given.to_string(), ir::dtype_name(table.dtype), cols));
  }
  return std::vector{ir::Type{table.dtype, {ids.shape[0], table.shape[1]}}};
}

Result<std::vector<ir::Type>> infer_resolve_ids(const ir::OpSignature& s) {
  const ir::Type& ids = s.operands[0];
  TRY(expect_rank(s, 0, "ids", 1));
  TRY(expect_type(s, 0, "ids", {ir::DType::kInt32, ids.shape}));
  TRY(expect_type(s, 1, "rows", ids));
  TRY(expect_rank(s, 2, "last_ids", 1));
  TRY(expect_type(s, 2, "last_ids", {ir::DType::kInt32, s.operands[2].shape}));
  constexpr std::int64_t kMaxId = std::numeric_limits<std::int32_t>::max();
  const auto is_id = [](std::int64_t id) { return id >= 0 && id <= kMaxId; };
  if (const ir::Attribute* attribute = s.node.find_attribute("replaced")) {
    const auto& replaced = std::get<std::vector<std::int64_t>>(*attribute);
    if (replaced.size() > kMaxReplacedIds || !std::ranges::all_of(replaced, is_id))
      return refuse(s, fmt::format("replaced must have at most {} ids, each in [0, {}]", kMaxReplacedIds, kMaxId));
  }
  const std::int64_t by = s.node.attribute_or("by", std::int64_t{0});
  if (!is_id(by)) return refuse(s, fmt::format("by = {}; it must be in [0, {}]", by, kMaxId));
  return std::vector{ids};
}

Result<std::vector<ir::Type>> infer_add_given(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  const ir::Type& given = s.operands[2];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  const std::int64_t cols = TRY(constant_cols(s, 0, "x"));
  TRY(expect_type(s, 1, "rows", {ir::DType::kInt32, {x.shape[0]}}));
  TRY(expect_rank(s, 2, "given", 2));
  const std::int64_t given_cols = TRY(constant_cols(s, 2, "given"));
  if (given_cols % cols != 0 || given.dtype != x.dtype)
    return refuse(s, fmt::format("given is {}; it must be {} with a multiple of {} columns", given.to_string(),
                                 ir::dtype_name(x.dtype), cols));
  const std::int64_t part = s.node.attribute_or("part", std::int64_t{0});
  if (part < 1 || part >= given_cols / cols)
    return refuse(s, fmt::format("part = {}; accepted is 1 to {}", part, given_cols / cols - 1));
  return std::vector{x};
}

template <class T>
TESSERA_CPU_CLONES void add_row(const T* x, const T* more, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_float<T>(to_float(x[i]) + to_float(more[i]));
}

Result<std::unique_ptr<BoundOp>> bind_add_given(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "add_given", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return make_cpu_op("add_given", [sum = given_sum<T>(args)] {
      parallel_rows(sum.count, 3 * sum.cols * static_cast<std::int64_t>(sizeof(T)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t t = begin; t < end; ++t) {
                        const T* x = sum.x + t * sum.cols;
                        T* y = sum.y + t * sum.cols;
                        if (const T* more = sum.row_of(t); more != nullptr)
                          add_row(x, more, y, sum.cols);
                        else
                          std::copy_n(x, sum.cols, y);
                      }
                    });
    });
  });
}

template <class T>
TESSERA_CPU_CLONES void scale_row(const T* x, T* y, std::int64_t n, float scale) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_float<T>(to_float(x[i]) * scale);
}

template <class T>
void write_scaled_row(const RowCopy& copy, std::int64_t t, std::int64_t n, float scale) {
  T* const to = reinterpret_cast<T*>(copy.out) + t * n;
  const std::int64_t given = copy.given_rows != nullptr ? copy.given_rows[t] : -1;
  if (given >= 0 && given < copy.num_given) {
    std::copy_n(reinterpret_cast<const T*>(copy.given + given * copy.given_row_bytes), n, to);
  } else if (const std::int64_t id = copy.rows[t] - copy.first_row; given < 0 && id >= 0 && id < copy.table_rows) {
    scale_row(reinterpret_cast<const T*>(copy.table) + id * n, to, n, scale);
  } else {
    std::fill_n(to, n, from_float<T>(0.0f));
  }
}

Result<std::unique_ptr<BoundOp>> bind_embedding(const BindArgs& args) {
  if (is_block_table(args.node)) return bind_block_embedding(args);
  const RowCopy copy = embedding_rows(args);
  const double scale = args.node.attribute_or("scale", 1.0);
  if (scale == 1.0) return make_cpu_row_copy("embedding", copy);
  return dispatch_dtype(args.operands[1].dtype, "embedding", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const std::int64_t n = args.operands[1].cols();
    const float factor = to_float(from_float<T>(static_cast<float>(scale)));
    return make_cpu_op("embedding", [=] {
      parallel_rows(copy.count, 2 * copy.row_bytes, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) write_scaled_row<T>(copy, t, n, factor);
      });
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_resolve_ids(const BindArgs& args) {
  return make_cpu_op("resolve_ids", [r = id_resolution(args)] {
    for (std::int64_t t = 0; t < r.count; ++t) {
      const std::int32_t row = r.rows[t];
      const std::int32_t id = row < 0 ? r.ids[t] : row < r.last_rows ? r.last_ids[row] : -2;
      r.out[t] = std::ranges::find(r.replaced, id) != std::end(r.replaced) ? r.by : id;
    }
  });
}

}  // namespace

const ir::OpDecl kEmbedding{
    .name = "embedding",
    .summary =
        "rows[t] >= 0 ? given[rows[t]] : table[ids[t]] * scale, zeros for a row outside: i32[T], [V, H], i32[T], "
        "[E, K*H] -> [T, H]",
    .operands = {{.name = "ids"},
                 {.name = "table"},
                 {.name = "rows", .optional = true},
                 {.name = "given", .optional = true}},
    .attributes = {{"scale", ir::AttributeKind::kDouble},
                   {"first_row", ir::AttributeKind::kInt},
                   {"table_rows", ir::AttributeKind::kInt},
                   {"values", ir::AttributeKind::kString},
                   {"dtype", ir::AttributeKind::kString}},
    .infer = infer_embedding,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kResolveIds{
    .name = "resolve_ids",
    .summary =
        "rows[t] >= 0 ? last_ids[rows[t]] : ids[t], `by` for one of `replaced`: i32[T], i32[T], i32[R] -> i32[T]",
    .operands = {{"ids"}, {"rows"}, {"last_ids"}},
    .attributes = {{"by", ir::AttributeKind::kInt}, {"replaced", ir::AttributeKind::kInts}},
    .infer = infer_resolve_ids,
};

const KernelDef kEmbeddingCpu{.op = "embedding", .name = "cpu", .bind = bind_embedding};

const ir::OpDecl kAddGiven{
    .name = "add_given",
    .summary = "x[t] + given[rows[t], part*H : (part+1)*H], x[t] for a row outside: [T, H], i32[T], [E, K*H] -> [T, H]",
    .operands = {{"x"}, {"rows"}, {"given"}},
    .attributes = {{"part", ir::AttributeKind::kInt, true}},
    .infer = infer_add_given,
};

const KernelDef kAddGivenCpu{.op = "add_given", .name = "cpu", .bind = bind_add_given};

const KernelDef kResolveIdsCpu{.op = "resolve_ids", .name = "cpu", .bind = bind_resolve_ids};

}  // namespace tessera
