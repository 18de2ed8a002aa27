#include "tessera/ops/rows/join.h"

#include <cstring>
#include <string>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_join(const ir::OpSignature& s) {
  const ir::Type& first = s.operands[0];
  std::int64_t cols = 0;
  for (std::size_t i = 0; i < s.operands.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    TRY(expect_rank(s, i, name, 2));
    const std::int64_t of_this = TRY(constant_cols(s, i, name));
    TRY(expect_type(s, i, name, {first.dtype, {first.shape[0], of_this}}));
    cols += of_this;
  }
  return std::vector{ir::Type{first.dtype, {first.shape[0], cols}}};
}

struct Part {
  const std::byte* data;  // [rows, row_bytes]
  std::int64_t row_bytes;
};

struct Join {
  Part parts[kMaxJoined];
  std::size_t count;
  std::byte* out;  // [rows, row_bytes]
  std::int64_t rows;
  std::int64_t row_bytes;

  void operator()() const {
    parallel_rows(rows, 2 * row_bytes, [this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        std::byte* to = out + r * row_bytes;
        for (std::size_t i = 0; i < count; ++i) {
          std::memcpy(to, parts[i].data + r * parts[i].row_bytes, static_cast<std::size_t>(parts[i].row_bytes));
          to += parts[i].row_bytes;
        }
      }
    });
  }
};

Result<std::unique_ptr<BoundOp>> bind_join(const BindArgs& args) {
  Join join{};
  join.count = args.operands.size();
  for (std::size_t i = 0; i < join.count; ++i) {
    const TensorView& x = args.operands[i];
    join.parts[i] = {x.data.raw(), x.cols() * static_cast<std::int64_t>(ir::dtype_size(x.dtype))};
  }
  join.out = args.results[0].data.raw();
  join.rows = args.results[0].dim(0);
  join.row_bytes = args.results[0].cols() * static_cast<std::int64_t>(ir::dtype_size(args.results[0].dtype));
  return make_cpu_op("join", join);
}

}  // namespace

const ir::OpDecl kJoin{
    .name = "join",
    .summary = "matrices side by side: [T, n0], [T, n1], ... -> [T, n0 + n1 + ...]",
    .operands = {{"x0"},
                 {.name = "x1", .optional = true},
                 {.name = "x2", .optional = true},
                 {.name = "x3", .optional = true},
                 {.name = "x4", .optional = true},
                 {.name = "x5", .optional = true},
                 {.name = "x6", .optional = true},
                 {.name = "x7", .optional = true}},
    .attributes = {},
    .infer = infer_join,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kJoinCpu{.op = "join", .name = "cpu", .bind = bind_join};

}  // namespace tessera
