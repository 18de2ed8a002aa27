#include "tessera/ops/embedding.h"

#include "tessera/ops/cpu_op.h"
#include "tessera/ops/gather.h"
#include "tessera/ops/shape_rule.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_embedding(const ir::OpSignature& s) {
  const ir::Type& ids = s.operands[0];
  const ir::Type& table = s.operands[1];
  TRY(expect_rank(s, 0, "ids", 1));
  TRY(expect_type(s, 0, "ids", {ir::DType::kInt32, ids.shape}));
  TRY(expect_floating(s, 1, "table"));
  TRY(expect_rank(s, 1, "table", 2));
  TRY(constant_cols(s, 1, "table"));
  TRY(expect_type(s, 2, "rows", ids));
  TRY(expect_rank(s, 3, "given", 2));
  TRY(expect_type(s, 3, "given", {table.dtype, {s.operands[3].shape[0], table.shape[1]}}));
  return std::vector{ir::Type{table.dtype, {ids.shape[0], table.shape[1]}}};
}

Result<std::vector<ir::Type>> infer_resolve_ids(const ir::OpSignature& s) {
  const ir::Type& ids = s.operands[0];
  TRY(expect_rank(s, 0, "ids", 1));
  TRY(expect_type(s, 0, "ids", {ir::DType::kInt32, ids.shape}));
  TRY(expect_type(s, 1, "rows", ids));
  TRY(expect_rank(s, 2, "last_ids", 1));
  TRY(expect_type(s, 2, "last_ids", {ir::DType::kInt32, s.operands[2].shape}));
  return std::vector{ids};
}

Result<std::unique_ptr<BoundOp>> bind_embedding(const BindArgs& args) {
  const TensorView& table = args.operands[1];
  return make_cpu_row_copy("embedding",
                           {.table = table.data.raw(),
                            .rows = args.operands[0].as<std::int32_t>(),
                            .given = args.operands[3].data.raw(),
                            .given_rows = args.operands[2].as<std::int32_t>(),
                            .out = args.results[0].data.raw(),
                            .table_rows = table.dim(0),
                            .num_given = args.operands[3].dim(0),
                            .count = args.operands[0].dim(0),
                            .row_bytes = table.cols() * static_cast<std::int64_t>(ir::dtype_size(table.dtype))});
}

Result<std::unique_ptr<BoundOp>> bind_resolve_ids(const BindArgs& args) {
  const std::int32_t* ids = args.operands[0].as<std::int32_t>();
  const std::int32_t* rows = args.operands[1].as<std::int32_t>();
  const std::int32_t* last_ids = args.operands[2].as<std::int32_t>();
  std::int32_t* out = args.results[0].as<std::int32_t>();
  const std::int64_t count = args.operands[0].dim(0);
  const std::int64_t last_rows = args.operands[2].dim(0);
  return make_cpu_op("resolve_ids", [=] {
    for (std::int64_t t = 0; t < count; ++t) {
      if (rows[t] < 0)
        out[t] = ids[t];
      else
        out[t] = rows[t] < last_rows ? last_ids[rows[t]] : -2;
    }
  });
}

}  // namespace

const ir::OpDecl kEmbedding{
    .name = "embedding",
    .summary =
        "rows[t] >= 0 ? given[rows[t]] : table[ids[t]], zeros for a row outside: i32[T], [V, H], i32[T], [E, H] "
        "-> [T, H]",
    .operands = {{"ids"}, {"table"}, {"rows"}, {"given"}},
    .attributes = {},
    .infer = infer_embedding,
};

const ir::OpDecl kResolveIds{
    .name = "resolve_ids",
    .summary = "rows[t] >= 0 ? last_ids[rows[t]] : ids[t]: i32[T], i32[T], i32[R] -> i32[T]",
    .operands = {{"ids"}, {"rows"}, {"last_ids"}},
    .attributes = {},
    .infer = infer_resolve_ids,
};

const KernelDef kEmbeddingCpu{.op = "embedding", .name = "cpu", .bind = bind_embedding};

const KernelDef kResolveIdsCpu{.op = "resolve_ids", .name = "cpu", .bind = bind_resolve_ids};

}  // namespace tessera
