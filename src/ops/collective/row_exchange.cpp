// Declares the exchanges of rows as operators, and implements them on CPUs.
#include "tessera/ops/collective/row_exchange.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "tessera/comm/communicator.h"
#include "tessera/ops/cpu/cpu_op.h"

namespace tessera {
namespace {

Result<std::int64_t> ranks_attribute(const ir::OpSignature& signature) {
  const std::int64_t ranks = signature.node.attribute_or("ranks", std::int64_t{0});
  if (ranks >= 1) return ranks;
  return invalid_argument(fmt::format("{}'s ranks is {}; at least 1 is needed", signature.node.op, ranks));
}

Result<std::vector<ir::Type>> infer_gather(const ir::OpSignature& signature) {
  ir::Type y = signature.operands[0];
  const std::int64_t ranks = TRY(ranks_attribute(signature));
  if (y.shape.empty()) return invalid_argument(fmt::format("all_gather_rows takes rows, not {}", y.to_string()));
  y.shape[0] = y.shape[0] * ranks;
  return std::vector<ir::Type>{std::move(y)};
}

Result<std::vector<ir::Type>> infer_scatter(const ir::OpSignature& signature) {
  ir::Type y = signature.operands[0];
  const std::int64_t ranks = TRY(ranks_attribute(signature));
  if (!ir::is_floating_point(y.dtype) || y.shape.empty())
    return invalid_argument(fmt::format("reduce_scatter takes rows of f32, bf16 or f16, not {}", y.to_string()));
  y.shape[0] = y.shape[0].divided_by(ranks);
  return std::vector<ir::Type>{std::move(y)};
}

// Binds an operator that calls `exchange`, a function of Communicator that takes the operand and the result.
Result<std::unique_ptr<BoundOp>> bind(const char* name, const BindArgs& args,
                                      Status (Communicator::*exchange)(const TensorView&, const TensorView&)) {
  TRY(ranks_of_exchange(args));
  const TensorView x = args.operands[0];
  const TensorView y = args.results[0];
  Communicator* communicator = args.context.communicator;
  return make_cpu_op(name, [=]() -> Status {
    if (communicator != nullptr) return communicator->abort_on_error((communicator->*exchange)(x, y));
    if (x.bytes() > 0) std::memcpy(y.data.raw(), x.data.raw(), static_cast<std::size_t>(x.bytes()));
    return ok_status();
  });
}

Result<std::unique_ptr<BoundOp>> bind_gather(const BindArgs& args) {
  return bind("all_gather_rows", args, &Communicator::all_gather_rows);
}

Result<std::unique_ptr<BoundOp>> bind_scatter(const BindArgs& args) {
  return bind("reduce_scatter", args, &Communicator::reduce_scatter);
}

}  // namespace

Result<std::int64_t> ranks_of_exchange(const BindArgs& args) {
  const Communicator* communicator = args.context.communicator;
  const std::int64_t ranks = args.node.attribute_or("ranks", std::int64_t{0});
  const std::int64_t present = communicator != nullptr ? communicator->ranks() : 1;
  if (ranks != present)
    return failed_precondition(fmt::format("{} was built for {} ranks, but {} run", args.node.op, ranks, present));
  return ranks;
}

const ir::OpDecl kAllGatherRows{
    .name = "all_gather_rows",
    .summary = "x[T, ...] of every rank one below the other: y[ranks*T, ...]",
    .operands = {{.name = "x"}},
    .attributes = {{.name = "ranks", .kind = ir::AttributeKind::kInt, .required = true}},
    .infer = infer_gather,
    .rows = ir::RowUse::kExchange,
};

const ir::OpDecl kReduceScatter{
    .name = "reduce_scatter",
    .summary = "y[T, N] = sum over ranks, in rank order, of this rank's rows of x[ranks*T, N]",
    .operands = {{.name = "x"}},
    .attributes = {{.name = "ranks", .kind = ir::AttributeKind::kInt, .required = true}},
    .infer = infer_scatter,
    .rows = ir::RowUse::kExchange,
};

const KernelDef kAllGatherRowsCpu{.op = "all_gather_rows", .name = "cpu", .bind = bind_gather};
const KernelDef kReduceScatterCpu{.op = "reduce_scatter", .name = "cpu", .bind = bind_scatter};

}  // namespace tessera
