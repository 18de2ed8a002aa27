#include "tessera/comm/peer_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <vector>

#include "tessera/comm/introduction.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera::cuda {
namespace {

// The data that each rank sends to the others before they exchange values.
struct Introduction {
  int ordinal = 0;
  std::byte* mailbox = nullptr;
};

}  // namespace

Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return ok_status();
  (void)cudaGetLastError();
  return internal_error(fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

Status reach_peer(int own, int other) {
  if (own == other) return ok_status();
  int can = 0;
  TRY(cuda_status(cudaDeviceCanAccessPeer(&can, own, other), "cudaDeviceCanAccessPeer"));
  if (can == 0) {
    return unimplemented(fmt::format(
        "cuda:{} cannot reach the memory of cuda:{}; ranks need GPUs that are joined by NVLink or peer-to-peer PCIe",
        own, other));
  }
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
  if (enabled != cudaErrorPeerAccessAlreadyEnabled) return cuda_status(enabled, "cudaDeviceEnablePeerAccess");
  (void)cudaGetLastError();
  return ok_status();
}

Result<std::shared_ptr<PeerExchange>> PeerExchange::of(Communicator& communicator, Device& device) {
  std::weak_ptr<DeviceExchange>& kept = communicator.device_state().ranks;
  if (std::shared_ptr<DeviceExchange> there = kept.lock())
    return std::static_pointer_cast<PeerExchange>(std::move(there));
  std::shared_ptr<PeerExchange> made(new PeerExchange);
  const Status opened = made->open(communicator, device);
  if (!opened.ok()) {
    communicator.abort(opened.message());
    return opened;
  }
  kept = made;
  return made;
}

Status PeerExchange::open(Communicator& communicator, Device& device) {
  if (communicator.ranks() > kMostPeers)
    return unimplemented(
        fmt::format("{} ranks on one host; at most {} are accepted", communicator.ranks(), kMostPeers));
  TRY(static_cast<CudaDevice&>(device).make_current());
  memory_ = TRY(device.allocate(kMailboxBytes, "mailbox of the other ranks"));
  stop_ = TRY(device.allocate_host(sizeof(std::atomic<std::uint32_t>), "flag that a group of ranks has ended"));
  auto* stop = new (stop_->data()) std::atomic<std::uint32_t>(0);
  std::byte* memory = memory_->data().raw();
  std::byte* mailbox = memory + kMailboxAt;
  static_assert(sizeof(Turns) <= kMailboxAt);
  TRY(cuda_status(cudaMemset(memory, 0, sizeof(Turns)), "cudaMemset"));
  TRY(cuda_status(clear_mailbox(mailbox, kMailboxBytes - kMailboxAt), "clearing the mailbox"));

  int ordinal = 0;
  TRY(cuda_status(cudaGetDevice(&ordinal), "cudaGetDevice"));
  // introduce() is also a barrier: when it returns, all ranks have cleared their mailboxes.
  const std::vector<Introduction> all =
      TRY(introduce(communicator, Introduction{.ordinal = ordinal, .mailbox = mailbox}));
  peers_ = {.rank = communicator.rank(),
            .ranks = communicator.ranks(),
            .buffer_words = static_cast<std::int64_t>(kBufferBytes / sizeof(std::uint32_t)),
            .turns = reinterpret_cast<Turns*>(memory),
            .stop = reinterpret_cast<const std::uint32_t*>(stop)};
  const auto place_of = [&](int rank) { return communicator.world_rank() - communicator.rank() + rank; };
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int>(r) != peers_.rank && all[r].ordinal == ordinal) {
      return invalid_argument(fmt::format(
          "ranks {} and {} are both on cuda:{}; each needs a GPU of its own, because their kernels wait for each other",
          place_of(std::min<int>(peers_.rank, static_cast<int>(r))),
          place_of(std::max<int>(peers_.rank, static_cast<int>(r))), ordinal));
    }
    TRY(reach_peer(ordinal, all[r].ordinal));
    peers_.mailboxes[r] = reinterpret_cast<std::uint32_t*>(all[r].mailbox);
  }
  communicator.raise_when_ended(stop);
  communicator_ = &communicator;
  return ok_status();
}

PeerExchange::~PeerExchange() {
  if (communicator_ != nullptr) communicator_->take_back(reinterpret_cast<std::atomic<std::uint32_t>*>(stop_->data()));
}

}  // namespace tessera::cuda
