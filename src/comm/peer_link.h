// The link between two pipeline stages on GPUs of one process. The sender writes directly into the receiver's GPU
// memory.
//
// The memory has kLinkSlots slots that are used in turn. Both sides count turns in device memory, so replays of
// recorded graphs continue the count. A launch has kLinkBlocks thread blocks on the sender and on the receiver. Block b
// of one side synchronises only with block b of the other side. In turn t the sender's block waits until the receiver's
// block has finished turn t - kLinkSlots. The sender's block then writes its part of the slot and sets its counter in
// `sent` to t + 1. The receiver's block waits for this count, reads the part, and sets its counter in `taken` to t + 1.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/peer_sizes.h"
#include "tessera/device/device.h"

namespace tessera::cuda {

inline constexpr int kLinkBlocks = 64;

// The launch counters of one side of the link, in the memory of its own GPU.
struct LinkTurns {
  std::uint32_t turn = 0;
  std::uint32_t blocks_done = 0;  // number of finished blocks of the running launch
};

// The arguments of one side's kernels, which are passed by value. Counters wrap around.
struct LinkEnd {
  LinkTurns* turns = nullptr;
  std::byte* slots = nullptr;      // [kLinkSlots][kLinkSlotBytes], on the receiver's GPU
  std::uint32_t* sent = nullptr;   // [kLinkBlocks], on the receiver's GPU
  std::uint32_t* taken = nullptr;  // [kLinkBlocks], on the sender's GPU
  // A flag in host memory. If it is not 0, the group has ended, and missing values will never arrive.
  const std::uint32_t* stop = nullptr;
};

// One side of the link. The Communicator must outlive the PeerLink. The PeerLink may be destroyed once no launch of the
// rank is running.
class PeerLink final : public DeviceExchange {
 public:
  // Returns the communicator's link to the next stage if `to_next`, otherwise the link from the previous stage. If
  // there is none, makes it together with the neighbouring rank, and blocks until that rank has called of(). Returns
  // the same errors as PeerExchange::of().
  static Result<std::shared_ptr<PeerLink>> of(Communicator& communicator, bool to_next, Device& device);
  ~PeerLink() override;
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  const LinkEnd& end() const { return end_; }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(memory_->size()); }

 private:
  PeerLink() = default;
  Status open(Communicator& communicator, bool to_next, Device& device);

  Communicator* communicator_ = nullptr;  // null until the communicator holds the flag in stop_
  std::unique_ptr<HostAllocation> stop_;
  std::unique_ptr<Allocation> memory_;  // holds LinkTurns and counters, and on the receiver the slots
  LinkEnd end_;
};

}  // namespace tessera::cuda
