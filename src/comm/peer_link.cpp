#include "tessera/comm/peer_link.h"

#include <fmt/format.h>

#include <atomic>
#include <new>
#include <span>
#include <string_view>

#include "tessera/comm/peer_exchange.h"
#include "tessera/comm/pipeline.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera::cuda {
namespace {

// The data that the two sides exchange before the first value.
struct Introduction {
  int ordinal = 0;
  std::byte* memory = nullptr;  // LinkTurns, followed by counters and, on the receiver, slots
};

static_assert(sizeof(LinkTurns) <= kLinkCountersAt);
static_assert(kLinkBlocks * sizeof(std::uint32_t) <= kLinkSlotsAt - kLinkCountersAt);

}  // namespace

Result<std::shared_ptr<PeerLink>> PeerLink::of(Communicator& communicator, bool to_next, Device& device) {
  std::weak_ptr<DeviceExchange>& state = communicator.device_state().link(to_next);
  if (std::shared_ptr<DeviceExchange> there = state.lock()) return std::static_pointer_cast<PeerLink>(std::move(there));
  std::shared_ptr<PeerLink> made(new PeerLink);
  const Status opened = made->open(communicator, to_next, device);
  if (!opened.ok()) {
    communicator.abort(opened.message());
    return opened;
  }
  state = made;
  return made;
}

Status PeerLink::open(Communicator& communicator, bool to_next, Device& device) {
  TRY(static_cast<CudaDevice&>(device).make_current());
  memory_ = TRY(device.allocate(link_bytes(/*receives=*/!to_next), "link to a neighbouring stage"));
  stop_ = TRY(device.allocate_host(sizeof(std::atomic<std::uint32_t>), "flag that a pipeline has ended"));
  auto* stop = new (stop_->data()) std::atomic<std::uint32_t>(0);
  std::byte* own = memory_->data().raw();
  TRY(cuda_status(cudaMemset(own, 0, kLinkSlotsAt), "cudaMemset"));
  TRY(cuda_status(cudaDeviceSynchronize(), "clearing a link's counters"));

  Introduction mine{.memory = own};
  Introduction other;
  TRY(cuda_status(cudaGetDevice(&mine.ordinal), "cudaGetDevice"));
  Pipeline& pipeline = *communicator.pipeline();
  const auto own_way = to_next ? Pipeline::Way::kToNext : Pipeline::Way::kToPrevious;
  const auto other_way = to_next ? Pipeline::Way::kToPrevious : Pipeline::Way::kToNext;
  TRY(pipeline.send(communicator.world_rank(), own_way, std::as_bytes(std::span(&mine, 1))));
  TRY(pipeline.receive(communicator.world_rank(), other_way, std::as_writable_bytes(std::span(&other, 1))));
  if (other.ordinal == mine.ordinal) {
    return invalid_argument(fmt::format(
        "two stages are both on cuda:{}; each needs a GPU of its own, because their kernels wait for each other",
        mine.ordinal));
  }
  TRY(reach_peer(mine.ordinal, other.ordinal));
  std::byte* sender = to_next ? own : other.memory;
  std::byte* receiver = to_next ? other.memory : own;
  end_ = {.turns = reinterpret_cast<LinkTurns*>(own),
          .slots = receiver + kLinkSlotsAt,
          .sent = reinterpret_cast<std::uint32_t*>(receiver + kLinkCountersAt),
          .taken = reinterpret_cast<std::uint32_t*>(sender + kLinkCountersAt),
          .stop = reinterpret_cast<const std::uint32_t*>(stop)};
  communicator.raise_when_ended(stop);
  communicator_ = &communicator;
  return ok_status();
}

PeerLink::~PeerLink() {
  if (communicator_ != nullptr) communicator_->take_back(reinterpret_cast<std::atomic<std::uint32_t>*>(stop_->data()));
}

}  // namespace tessera::cuda
