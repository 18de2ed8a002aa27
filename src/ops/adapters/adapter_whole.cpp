#include "tessera/ops/adapters/adapter_whole.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "tessera/ops/adapters/adapter_dot.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

// Checks operand 2, w X[S, shape[0], shape[1]], and operand 3, sizes i32[S, 1]. X is the type of operand 0.
Status check_matrices(const ir::OpSignature& s, const std::array<ir::Dim, 2>& shape) {
  TRY(expect_rank(s, 2, "w", 3));
  const ir::Dim& slots = s.operands[2].shape[0];
  TRY(expect_type(s, 2, "w", {s.operands[0].dtype, {slots, shape[0], shape[1]}}));
  for (const ir::Dim& dim : s.operands[2].shape)
    if (!dim.constant())
      return refuse(s, fmt::format("w is {}; its dimensions must be numbers", s.operands[2].to_string()));
  return expect_type(s, 3, "sizes", {ir::DType::kInt32, {slots, ir::Dim(std::int64_t{1})}});
}

Result<std::vector<ir::Type>> infer_adapter_linear(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "y"));
  TRY(expect_rank(s, 0, "y", 2));
  TRY(expect_rank(s, 1, "x", 2));
  const ir::Type& y = s.operands[0];
  const ir::Type& x = s.operands[1];
  TRY(expect_type(s, 1, "x", {y.dtype, {y.shape[0], x.shape[1]}}));
  TRY(check_matrices(s, {y.shape[1], x.shape[1]}));
  TRY(expect_type(s, 4, "rows", {ir::DType::kInt32, {kAdapterRowLists, y.shape[0]}}));
  return std::vector<ir::Type>();
}

Result<std::vector<ir::Type>> infer_embedding(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "y"));
  TRY(expect_rank(s, 0, "y", 2));
  const ir::Type& y = s.operands[0];
  TRY(check_adapter_tokens(s, 1, y.shape[0]));
  TRY(expect_rank(s, 2, "w", 3));
  TRY(check_matrices(s, {s.operands[2].shape[1], y.shape[1]}));
  return std::vector<ir::Type>();
}

template <class T>
void whole_value(const AdapterWholeLinearArgs& in, std::int64_t item) {
  const std::int64_t row = item / in.rank;
  const std::int32_t slot = in.table.slots[row];
  if (slot < 0 || in.ranks[slot] == 0) return;
  const T* const x = static_cast<const T*>(in.x) + row * in.cols;
  const T* const w = static_cast<const T*>(in.a) + (std::int64_t{slot} * in.rank + item % in.rank) * in.cols;
  static_cast<T*>(in.y)[item] = from_float<T>(adapter_dot(x, w, in.cols));
}

Result<std::unique_ptr<BoundOp>> bind_linear(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "adapter_whole_linear",
                        [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
                          const AdapterWholeLinearArgs in = adapter_whole_linear_args(args);
                          return make_cpu_op("adapter_whole_linear", [in] {
                            parallel_rows(in.rows * in.rank, 2 * in.cols * static_cast<std::int64_t>(sizeof(T)),
                                          [&](std::int64_t begin, std::int64_t end) {
                                            for (std::int64_t item = begin; item < end; ++item)
                                              whole_value<T>(in, item);
                                          });
                          });
                        });
}

Result<std::unique_ptr<BoundOp>> bind_embedding(const BindArgs& args) {
  const AdapterWholeEmbeddingArgs in = adapter_whole_embedding_args(args);
  const std::int64_t bytes = in.cols * static_cast<std::int64_t>(ir::dtype_size(args.operands[0].dtype));
  return make_cpu_op("adapter_whole_embedding", [in, bytes] {
    parallel_rows(in.rows, 2 * bytes, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        if (const std::int64_t source = in.source(row); source >= 0)
          std::memcpy(static_cast<std::byte*>(in.y) + row * bytes, static_cast<const std::byte*>(in.w) + source * bytes,
                      static_cast<std::size_t>(bytes));
    });
  });
}

}  // namespace

AdapterWholeLinearArgs adapter_whole_linear_args(const BindArgs& args) {
  return {AdapterProductArgs::of(args.operands[1], args.operands[2], args.operands[3], args.operands[4]),
          args.operands[0].data.raw()};
}

AdapterWholeEmbeddingArgs adapter_whole_embedding_args(const BindArgs& args) {
  const TensorView& w = args.operands[2];
  return {adapter_tokens(args, 1, w.dim(1), w.dim(0)), args.operands[0].data.raw(), w.data.raw(),
          args.operands[3].as<std::int32_t>(), args.operands[0].cols()};
}

const ir::OpDecl kAdapterWholeLinear{
    .name = "adapter_whole_linear",
    .summary = "y = x . wT of the row's slot, where it has one: mut [T, M], [T, K], [S, M, K], i32[S, 1], i32[5, T]",
    .operands = {{"y", true}, {"x"}, {"w"}, {"sizes"}, {"rows"}},
    .attributes = {},
    .infer = infer_adapter_linear,
};

const ir::OpDecl kAdapterWholeEmbedding{
    .name = "adapter_whole_embedding",
    .summary =
        "y = row ids[t] - first_row of w of the row's slot, where it has one: mut [T, M], i32[T], [S, V, M], "
        "i32[S, 1], i32[5, T], i32[T]",
    .operands = {{"y", true}, {"ids"}, {"w"}, {"sizes"}, {"slots"}, {.name = "rows", .optional = true}},
    .attributes = {{"first_row", ir::AttributeKind::kInt}},
    .infer = infer_embedding,
};

const KernelDef kAdapterWholeLinearCpu{.op = "adapter_whole_linear", .name = "cpu", .bind = bind_linear};
const KernelDef kAdapterWholeEmbeddingCpu{.op = "adapter_whole_embedding", .name = "cpu", .bind = bind_embedding};

}  // namespace tessera
