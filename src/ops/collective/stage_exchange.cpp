// Declares the operators that pass hidden states between pipeline stages, and implements them on CPUs.
#include "tessera/ops/collective/stage_exchange.h"

#include <fmt/format.h>

#include <span>

#include "tessera/comm/communicator.h"
#include "tessera/comm/pipeline.h"
#include "tessera/ops/cpu/cpu_op.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_exchange(const ir::OpSignature& signature) {
  const ir::Type& x = signature.operands[0];
  if (x.shape.size() != 2)
    return invalid_argument(fmt::format("{} takes X[T, N], not {}", signature.node.op, x.to_string()));
  return std::vector<ir::Type>{};
}

Result<Communicator*> communicator_of(const BindArgs& args) {
  Communicator* communicator = args.context.communicator;
  if (communicator != nullptr && communicator->pipeline() != nullptr) return communicator;
  return failed_precondition(fmt::format("{} was built for several pipeline stages, but only one runs", args.node.op));
}

std::span<std::byte> bytes_of(const TensorView& x) { return {x.data.raw(), static_cast<std::size_t>(x.bytes())}; }

Result<std::unique_ptr<BoundOp>> bind_send(const BindArgs& args) {
  Communicator* communicator = TRY(communicator_of(args));
  return make_cpu_op("send_to_next", [communicator, x = args.operands[0]] {
    return communicator->abort_on_error(
        communicator->pipeline()->send(communicator->world_rank(), Pipeline::Way::kToNext, bytes_of(x)));
  });
}

Result<std::unique_ptr<BoundOp>> bind_receive(const BindArgs& args) {
  Communicator* communicator = TRY(communicator_of(args));
  return make_cpu_op("receive_from_previous", [communicator, x = args.operands[0]] {
    return communicator->abort_on_error(
        communicator->pipeline()->receive(communicator->world_rank(), Pipeline::Way::kToNext, bytes_of(x)));
  });
}

}  // namespace

const ir::OpDecl kSendToNext{
    .name = "send_to_next",
    .summary = "x[T, N] goes to the next stage of the pipeline",
    .operands = {{.name = "x", .mutated = true}},
    .infer = infer_exchange,
};

const ir::OpDecl kReceiveFromPrevious{
    .name = "receive_from_previous",
    .summary = "x[T, N] = what the previous stage of the pipeline sent",
    .operands = {{.name = "x", .mutated = true}},
    .infer = infer_exchange,
};

const KernelDef kSendToNextCpu{.op = "send_to_next", .name = "cpu", .bind = bind_send};
const KernelDef kReceiveFromPreviousCpu{.op = "receive_from_previous", .name = "cpu", .bind = bind_receive};

}  // namespace tessera
