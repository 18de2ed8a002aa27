#include "tessera/ops/rows/gather.h"

#include <cstring>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

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
  return make_cpu_row_copy("gather_rows", {.table = x.data.raw(),
                                           .rows = args.operands[1].as<std::int32_t>(),
                                           .out = args.results[0].data.raw(),
                                           .table_rows = x.dim(0),
                                           .count = args.operands[1].dim(0),
                                           .row_bytes = x.cols() * static_cast<std::int64_t>(ir::dtype_size(x.dtype))});
}

// Returns the row that is copied to row i of the output, or null if row i becomes zeros.
const std::byte* source_of(const RowCopy& copy, std::int64_t i) {
  const std::int32_t given = copy.given_rows == nullptr ? -1 : copy.given_rows[i];
  if (given >= 0) return given < copy.num_given ? copy.given + given * copy.given_row_bytes : nullptr;
  const std::int64_t row = copy.rows[i] - copy.first_row;
  return row >= 0 && row < copy.table_rows ? copy.table + row * copy.row_bytes : nullptr;
}

}  // namespace

std::unique_ptr<BoundOp> make_cpu_row_copy(const char* name, const RowCopy& copy) {
  return make_cpu_op(name, [copy] {
    const std::size_t size = static_cast<std::size_t>(copy.row_bytes);
    parallel_rows(copy.count, 2 * copy.row_bytes, [&copy, size](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::byte* const to = copy.out + i * copy.row_bytes;
        if (const std::byte* from = source_of(copy, i); from != nullptr)
          std::memcpy(to, from, size);
        else
          std::memset(to, 0, size);
      }
    });
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
