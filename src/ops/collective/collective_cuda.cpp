// Binds the collectives between GPUs. GPUs of one process access each other's memory. GPUs of several processes use
// NCCL.
#include "tessera/ops/collective/collective.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "tessera/comm/communicator.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/collective/nccl_collectives.h"
#include "tessera/ops/collective/peer_collectives.h"

namespace tessera {
namespace {

// A collective for a group of one rank. It copies `from` to `to` if they are different addresses.
class CopyOp final : public BoundOp {
 public:
  CopyOp(DeviceAddress to, DeviceAddress from, std::int64_t bytes)
      : to_(to), from_(from), bytes_(static_cast<std::size_t>(bytes)) {}
  Status enqueue(Stream& stream) const override {
    return bytes_ == 0 || to_ == from_ ? ok_status() : stream.copy(to_, from_, bytes_);
  }

 private:
  DeviceAddress to_;
  DeviceAddress from_;
  std::size_t bytes_;
};

Status check_bytes(std::string_view what, std::int64_t bytes) {
  if (bytes % 4 == 0) return ok_status();
  return unimplemented(fmt::format("{} of {} bytes between GPUs; multiples of 4 are accepted", what, bytes));
}

// Returns the UUID of the current GPU ("GPU-…"), in the form that nvidia-smi -L prints.
Result<std::string> uuid_of_current_gpu() {
  int ordinal = 0;
  cudaDeviceProp properties{};
  cudaError_t error = cudaGetDevice(&ordinal);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, ordinal);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return internal_error(fmt::format("cudaGetDeviceProperties: {}", cudaGetErrorString(error)));
  }
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(properties.uuid.bytes); ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(properties.uuid.bytes[i]));
  return text;
}

Result<std::unique_ptr<BoundOp>> bind_all_reduce(const BindArgs& args) {
  const TensorView x = args.operands[0];
  Communicator* communicator = args.context.communicator;
  if (communicator == nullptr || communicator->ranks() == 1) return std::make_unique<CopyOp>(x.data, x.data, 0);
  if (communicator->spans_processes()) return cuda::bind_nccl_reduce(TRY(cuda::nccl_of(*communicator, args.device)), x);
  TRY(check_bytes("all_reduce", x.bytes()));
  return cuda::bind_peer_reduce(TRY(cuda::PeerExchange::of(*communicator, args.device)), x,
                                cuda::reduce_way(communicator->ranks(), x.bytes()));
}

Result<std::unique_ptr<BoundOp>> bind_all_gather(const BindArgs& args) {
  const TensorView x = args.operands[0];
  Communicator* communicator = args.context.communicator;
  const std::int64_t ranks = args.node.attribute_or("ranks", std::int64_t{0});
  const std::int64_t present = communicator ? communicator->ranks() : 1;
  if (ranks != present)
    return failed_precondition(fmt::format("all_gather was built for {} ranks, but {} run", ranks, present));
  if (ranks == 1) return std::make_unique<CopyOp>(args.results[0].data, x.data, x.bytes());
  if (communicator->spans_processes())
    return cuda::bind_nccl_gather(TRY(cuda::nccl_of(*communicator, args.device)), x, args.results[0], args.workspace);
  const std::int64_t row_bytes = x.cols() * static_cast<std::int64_t>(ir::dtype_size(x.dtype));
  TRY(check_bytes("all_gather of rows", row_bytes));
  std::shared_ptr<cuda::PeerExchange> exchange = TRY(cuda::PeerExchange::of(*communicator, args.device));
  const std::int64_t most = cuda::most_gathered_bytes(exchange->peers());
  if (row_bytes > most) {
    return unimplemented(
        fmt::format("all_gather of rows of {} bytes between GPUs; at most {} are accepted", row_bytes, most));
  }
  return cuda::bind_peer_gather(std::move(exchange), x, args.results[0]);
}

Result<std::size_t> gather_scratch(const BindArgs& args) {
  const Communicator* communicator = args.context.communicator;
  const bool gathers = communicator != nullptr && communicator->ranks() > 1 && communicator->spans_processes();
  return gathers ? cuda::nccl_gather_scratch(args.results[0]) : 0;
}

}  // namespace

NcclExchange::Place cuda::nccl_place(Device& device) {
  return {.gpu = uuid_of_current_gpu,
          .make_current = [&gpu = static_cast<CudaDevice&>(device)] { return gpu.make_current(); },
          .available = [&device] { return device.available_bytes(); }};
}

Result<std::shared_ptr<NcclExchange>> cuda::nccl_of(Communicator& communicator, Device& device) {
  TRY(static_cast<CudaDevice&>(device).make_current());
  return NcclExchange::of(communicator, nccl_place(device));
}

const KernelDef kAllReduceCuda{.op = "all_reduce", .name = "peers or nccl", .bind = bind_all_reduce};
const KernelDef kAllGatherCuda{
    .op = "all_gather", .name = "peers or nccl", .bind = bind_all_gather, .workspace_bytes = gather_scratch};

}  // namespace tessera
