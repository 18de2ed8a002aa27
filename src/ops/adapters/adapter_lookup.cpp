#include "tessera/ops/adapters/adapter_lookup.h"

#include <fmt/format.h>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_lookup(const ir::OpSignature& s) {
  const ir::Type& ids = s.operands[0];
  TRY(expect_rank(s, 0, "ids", 1));
  TRY(check_adapter_tokens(s, 0, ids.shape[0]));
  TRY(expect_floating(s, 1, "a"));
  TRY(expect_rank(s, 1, "a", 3));
  const ir::Type& a = s.operands[1];
  for (const ir::Dim& dim : a.shape)
    if (!dim.constant()) return refuse(s, fmt::format("a is {}; its dimensions must be numbers", a.to_string()));
  TRY(expect_type(s, 2, "ranks", {ir::DType::kInt32, {a.shape[0], ir::Dim(std::int64_t{1})}}));
  return std::vector{ir::Type{ir::DType::kFloat32, {ids.shape[0], a.shape[1]}}};
}

Result<std::unique_ptr<BoundOp>> bind_lookup(const BindArgs& args) {
  return dispatch_dtype(args.operands[1].dtype, "adapter_lookup", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const AdapterLookupArgs in = adapter_lookup_args(args);
    return make_cpu_op("adapter_lookup", [in] {
      const T* const a = static_cast<const T*>(in.a);
      parallel_rows(in.rows, in.rank * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          for (std::int32_t r = 0; r < in.rank; ++r) {
            const std::int64_t place = in.place(row, r);
            in.t[row * in.rank + r] = place < 0 ? 0.0F : to_float(a[place]);
          }
      });
    });
  });
}

}  // namespace

AdapterLookupArgs adapter_lookup_args(const BindArgs& args) {
  const TensorView& a = args.operands[1];
  return {adapter_tokens(args, 0, a.dim(2), a.dim(0)), a.data.raw(), args.operands[2].as<std::int32_t>(),
          args.results[0].as<float>(), static_cast<std::int32_t>(a.dim(1))};
}

const ir::OpDecl kAdapterLookup{
    .name = "adapter_lookup",
    .summary =
        "column ids[t] - first_row of a of the row's slot: i32[T], [S, R, V], i32[S, 1], i32[5, T], i32[T] -> "
        "f32[T, R]",
    .operands = {{"ids"}, {"a"}, {"ranks"}, {"slots"}, {.name = "rows", .optional = true}},
    .attributes = {{"first_row", ir::AttributeKind::kInt}},
    .infer = infer_lookup,
};

const KernelDef kAdapterLookupCpu{.op = "adapter_lookup", .name = "cpu", .bind = bind_lookup};

}  // namespace tessera
