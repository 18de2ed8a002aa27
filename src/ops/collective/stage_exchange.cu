// Implements both sides of a link between two pipeline stages, in one process (comm/peer_link.h) or between two
// processes (NCCL).
#include "tessera/ops/collective/stage_exchange.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/comm/communicator.h"
#include "tessera/comm/nccl_exchange.h"
#include "tessera/comm/peer_link.h"
#include "tessera/comm/pipeline.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/collective/nccl_collectives.h"
#include "tessera/ops/collective/peer_kernels.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera {
namespace {

using cuda::kLinkBlocks;
using cuda::LinkEnd;
using cuda::LinkTurns;
using cuda::Unit;

constexpr int kThreads = 256;

__device__ inline std::uint32_t load_counter(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void store_counter(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Waits until the counter has reached `value`. Thread 0 reads the counter, and the other threads of the block wait for
// thread 0. Returns false if the group ends before that.
__device__ inline bool wait_for_counter(const std::uint32_t* counter, std::uint32_t value, const std::uint32_t* stop) {
  __shared__ bool reached;
  if (threadIdx.x == 0) {
    int looks = 0;
    reached = true;
    while (static_cast<std::int32_t>(load_counter(counter) - value) < 0) {
      if (++looks % cuda::kLooksBetweenStops != 0) continue;
      if (*static_cast<const volatile std::uint32_t*>(stop) == 0) continue;
      reached = false;
      break;
    }
  }
  __syncthreads();
  return reached;
}

// Ends the launch's turn. Each launch is one turn of this side of the link. The last block to end increments the turn's
// number.
__device__ inline void end_turn(LinkTurns* turns, std::uint32_t turn) {
  if (threadIdx.x != 0) return;
  if (atomicAdd(&turns->blocks_done, 1u) + 1 < gridDim.x) return;
  turns->blocks_done = 0;
  turns->turn = turn + 1;
}

// The blocks divide the value's units of 4 or 16 bytes into ranges. Returns the first unit of a block's range. Both
// sides of the link have the same ranges. A range may be empty.
__device__ inline std::int64_t first_unit(std::int64_t units, unsigned block) { return units * block / kLinkBlocks; }

template <int kWords>
__device__ inline Unit<kWords>* slot_of(const LinkEnd& end, std::uint32_t turn) {
  return reinterpret_cast<Unit<kWords>*>(end.slots + turn % cuda::kLinkSlots * cuda::kLinkSlotBytes);
}

template <int kWords>
__global__ void __launch_bounds__(kThreads)
    send_units(const __grid_constant__ LinkEnd end, Unit<kWords>* x, std::int64_t units) {
  const std::uint32_t turn = *static_cast<const volatile std::uint32_t*>(&end.turns->turn);
  // Waits until the receiver has read the slot's previous content, if there was any.
  if (wait_for_counter(&end.taken[blockIdx.x], turn - cuda::kLinkSlots + 1, end.stop)) {
    Unit<kWords>* slot = slot_of<kWords>(end, turn);
    const std::int64_t last = first_unit(units, blockIdx.x + 1);
    for (std::int64_t i = first_unit(units, blockIdx.x) + threadIdx.x; i < last; i += kThreads) slot[i] = x[i];
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      store_counter(&end.sent[blockIdx.x], turn + 1);
    }
  }
  end_turn(end.turns, turn);
}

template <int kWords>
__global__ void __launch_bounds__(kThreads)
    receive_units(const __grid_constant__ LinkEnd end, Unit<kWords>* x, std::int64_t units) {
  const std::uint32_t turn = *static_cast<const volatile std::uint32_t*>(&end.turns->turn);
  if (wait_for_counter(&end.sent[blockIdx.x], turn + 1, end.stop)) {
    const Unit<kWords>* slot = slot_of<kWords>(end, turn);
    const std::int64_t last = first_unit(units, blockIdx.x + 1);
    for (std::int64_t i = first_unit(units, blockIdx.x) + threadIdx.x; i < last; i += kThreads)
      x[i] = cuda::load_mail(slot + i);  // bypasses L1, which does not see what another GPU wrote
    __syncthreads();
    if (threadIdx.x == 0) store_counter(&end.taken[blockIdx.x], turn + 1);
  }
  end_turn(end.turns, turn);
}

template <int kWords>
Result<std::unique_ptr<BoundOp>> bind_units(bool sends, std::shared_ptr<cuda::PeerLink> link, const TensorView& x) {
  const std::int64_t units = x.bytes() / (4 * kWords);
  const std::int64_t most = cuda::kLinkSlotBytes / (4 * kWords);
  auto* data = x.as<Unit<kWords>>();
  auto* kernel = sends ? send_units<kWords> : receive_units<kWords>;
  TRY(cuda::load_code(kernel));
  return make_cuda_op(
      sends ? "send_to_next" : "receive_from_previous",
      [=, link = std::move(link)](cudaStream_t stream) {
        const cuda::LaunchShape shape{.grid = dim3(kLinkBlocks), .block = dim3(kThreads)};
        for (std::int64_t first = 0; first < units; first += most)
          cuda::launch(kernel, shape, stream, link->end(), data + first, std::min(most, units - first));
      },
      sends ? 1 : 0);
}

template <bool kSends>
Result<std::unique_ptr<BoundOp>> bind_link(const BindArgs& args) {
  const TensorView x = args.operands[0];
  Communicator* communicator = args.context.communicator;
  if (communicator == nullptr || communicator->pipeline() == nullptr)
    return failed_precondition(args.node.op + " was built for several pipeline stages, but only one runs");
  const Pipeline& pipeline = *communicator->pipeline();
  const int own = communicator->world_rank();
  const auto way = Pipeline::Way::kToNext;
  if (!pipeline.is_here(kSends ? pipeline.receiver(own, way) : pipeline.sender(own, way))) {
    TRY(static_cast<CudaDevice&>(args.device).make_current());
    return cuda::bind_nccl_link(TRY(NcclExchange::link(*communicator, kSends, cuda::nccl_place(args.device))), kSends,
                                x);
  }
  if (x.bytes() % 4 != 0)
    return unimplemented(args.node.op + " of " + std::to_string(x.bytes()) +
                         " bytes between GPUs; multiples of 4 are accepted");
  std::shared_ptr<cuda::PeerLink> link = TRY(cuda::PeerLink::of(*communicator, kSends, args.device));
  return x.bytes() % 16 == 0 ? bind_units<4>(kSends, std::move(link), x) : bind_units<1>(kSends, std::move(link), x);
}

}  // namespace

const KernelDef kSendToNextCuda{.op = "send_to_next", .name = "peers", .bind = bind_link<true>};
const KernelDef kReceiveFromPreviousCuda{.op = "receive_from_previous", .name = "peers", .bind = bind_link<false>};

}  // namespace tessera
