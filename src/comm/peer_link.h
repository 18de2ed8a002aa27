// The link between two pipeline stages on GPUs of one process: the sender writes into memory of the receiver's GPU,
// without a host in between.
//
// The memory has kLinkSlots slots that take turns. Both sides count turns in device memory, so that replays of recorded
// graphs continue the count. A launch has kLinkBlocks blocks on either side, and block b of one side synchronises only
// with block b of the other. The sender's block waits until the receiver's has taken turn t - kLinkSlots, writes its
// part of turn t and counts it in `sent`. The receiver's block waits for that, reads, and counts it in `taken`, which
// lies on the sender's GPU.
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

// The launch counters of a side, in memory of its own GPU.
struct LinkTurns {
  std::uint32_t turn = 0;
  std::uint32_t blocks_done = 0;  // blocks of the running launch that are done
};

// One side of the link as kernels see it; passed by value. Counters wrap around.
struct LinkEnd {
  LinkTurns* turns = nullptr;
  std::byte* slots = nullptr;           // [kLinkSlots][kLinkSlotBytes], on the receiver's GPU
  std::uint32_t* sent = nullptr;        // [kLinkBlocks], on the receiver's GPU
  std::uint32_t* taken = nullptr;       // [kLinkBlocks], on the sender's GPU
  const std::uint32_t* stop = nullptr;  // on the host; not 0: the group has ended, and missing values never come
};

// One side of the link. The communicator outlives it. It may be destroyed when the rank has no launch under way.
class PeerLink final : public DeviceExchange {
 public:
  // Returns the communicator's link to the next stage, or from the previous one. If there is none, makes it together
  // with the neighbour: blocks until the neighbour has called. Errors as PeerExchange::of().
  static Result<std::shared_ptr<PeerLink>> of(Communicator& communicator, bool to_next, Device& device);
  ~PeerLink() override;
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  const LinkEnd& end() const { return end_; }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(memory_->size()); }

 private:
  PeerLink() = default;
  Status open(Communicator& communicator, bool to_next, Device& device);

  Communicator* communicator_ = nullptr;  // null until it has the flag to raise
  std::unique_ptr<HostAllocation> stop_;
  std::unique_ptr<Allocation> memory_;  // LinkTurns and counters; on the receiver also the slots
  LinkEnd end_;
};

}  // namespace tessera::cuda
