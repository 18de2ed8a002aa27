// Declares the collectives as operators, and implements them on CPUs.
#include "tessera/ops/collective/collective.h"

#include <fmt/format.h>

#include <cstring>

#include "tessera/comm/communicator.h"
#include "tessera/ops/cpu/cpu_op.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_all_reduce(const ir::OpSignature& signature) {
  const ir::Type& x = signature.operands[0];
  if (!ir::is_floating_point(x.dtype) || x.shape.empty())
    return invalid_argument(
        fmt::format("all_reduce takes f32, bf16 or f16 of at least one dimension, not {}", x.to_string()));
  return std::vector<ir::Type>{};
}

Result<std::vector<ir::Type>> infer_all_gather(const ir::OpSignature& signature) {
  const ir::Type& x = signature.operands[0];
  const std::int64_t ranks = signature.node.attribute_or("ranks", std::int64_t{0});
  if (x.shape.size() != 2) return invalid_argument(fmt::format("all_gather takes X[R, N], not {}", x.to_string()));
  if (ranks < 1) return invalid_argument(fmt::format("all_gather's ranks is {}; at least 1 is needed", ranks));
  return std::vector<ir::Type>{{x.dtype, {x.shape[0], x.shape[1] * ranks}}};
}

Result<std::unique_ptr<BoundOp>> bind_all_reduce(const BindArgs& args) {
  const TensorView x = args.operands[0];
  Communicator* communicator = args.context.communicator;
  return make_cpu_op("all_reduce", [=]() -> Status {
    if (communicator == nullptr) return ok_status();
    return communicator->abort_on_error(communicator->all_reduce(x));
  });
}

Result<std::unique_ptr<BoundOp>> bind_all_gather(const BindArgs& args) {
  const TensorView x = args.operands[0];
  const TensorView y = args.results[0];
  Communicator* communicator = args.context.communicator;
  const std::int64_t ranks = args.node.attribute_or("ranks", std::int64_t{0});
  const std::int64_t present = communicator ? communicator->ranks() : 1;
  if (ranks != present)
    return failed_precondition(fmt::format("all_gather was built for {} ranks, but {} run", ranks, present));
  return make_cpu_op("all_gather", [=]() -> Status {
    if (communicator != nullptr) return communicator->abort_on_error(communicator->all_gather(x, y));
    if (x.bytes() > 0) std::memcpy(y.data.raw(), x.data.raw(), static_cast<std::size_t>(x.bytes()));
    return ok_status();
  });
}

}  // namespace

const ir::OpDecl kAllReduce{
    .name = "all_reduce",
    .summary = "x[*, N] = sum over ranks of x, in rank order",
    .operands = {{.name = "x", .mutated = true}},
    .attributes = {},
    .infer = infer_all_reduce,
    .split_by_default = true,
    .rows = ir::RowUse::kExchange,
};

const ir::OpDecl kAllGather{
    .name = "all_gather",
    .summary = "x[R, N] of every rank side by side: y[R, N*ranks]",
    .operands = {{.name = "x"}},
    .attributes = {{.name = "ranks", .kind = ir::AttributeKind::kInt, .required = true}},
    .infer = infer_all_gather,
    .rows = ir::RowUse::kExchange,
};

const KernelDef kAllReduceCpu{.op = "all_reduce", .name = "cpu", .bind = bind_all_reduce};
const KernelDef kAllGatherCpu{.op = "all_gather", .name = "cpu", .bind = bind_all_gather};

}  // namespace tessera
