#include "tessera/ops/gather.h"

#include <cstring>

#include "tessera/ops/cpu_op.h"
#include "tessera/ops/row_loop.h"
#include "tessera/ops/shape_rule.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_gather_rows(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  const ir::Type& rows = s.operands[1];
  TRY(expect_rank(s, 0, "x", 2));
  TRY(constant_cols(s, 0, "x"));
  TRY(expect_rank(s, 1, "rows", 1));
  TRY(expect_type(s, 1, "rows", {ir::DType::kInt32, rows.shape}));
  return std::vector{ir::Type{x.dtype, {rows.shape[0], x.shape[1]}}};
}

Result<std::unique_ptr<BoundOp>> bind_gather_rows(const BindArgs& args) {
  const TensorView& x = args.operands[0];
  const std::byte* table = x.data;
  const std::int32_t* rows = args.operands[1].as<std::int32_t>();
  std::byte* out = args.results[0].data;
  const std::int64_t table_rows = x.dim(0);
  const std::int64_t count = args.operands[1].dim(0);
  const std::int64_t row_bytes = x.cols() * static_cast<std::int64_t>(ir::dtype_size(x.dtype));
  return make_cpu_op("gather_rows", [=] { copy_rows(table, table_rows, rows, out, count, row_bytes); });
}

}  // namespace

void copy_rows(const std::byte* table, std::int64_t table_rows, const std::int32_t* rows, std::byte* out,
               std::int64_t count, std::int64_t row_bytes) {
  const std::size_t size = static_cast<std::size_t>(row_bytes);
  parallel_rows(count, 2 * row_bytes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (rows[i] >= 0 && rows[i] < table_rows)
        std::memcpy(out + i * row_bytes, table + rows[i] * row_bytes, size);
      else
        std::memset(out + i * row_bytes, 0, size);
    }
  });
}

const ir::OpDecl kGatherRows{
    .name = "gather_rows",
    .summary = "x[rows], zeros for a row outside x: [T, H], i32[R] -> [R, H]",
    .operands = {{"x"}, {"rows"}},
    .attributes = {},
    .infer = infer_gather_rows,
};

const KernelDef kGatherRowsCpu{.op = "gather_rows", .name = "cpu", .bind = bind_gather_rows};

}  // namespace tessera
