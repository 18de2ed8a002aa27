// What stages of a pipeline hand on between GPUs of one process: the sender writes into memory of the receiver's GPU,
// without a host in between.
//
// The memory has kLinkSlots slots that take turns. Both sides count turns in device memory, so that replays of recorded
// graphs go on counting. A launch has kLinkBlocks blocks on either side, and block b of the one meets block b of the
// other alone: the sender's waits until the receiver's has taken turn t - kLinkSlots, writes its part of turn t and
// counts it in `sent`; the receiver's waits for that, reads, and counts it in `taken`, which lies on the sender's GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/comm/collective.h"

namespace tessera::cuda {

inline constexpr int kLinkSlots = 4;  // a power of two, so that the slots go on in turn where counters wrap around
static_assert((kLinkSlots & (kLinkSlots - 1)) == 0);
inline constexpr int kLinkBlocks = 64;
inline constexpr std::int64_t kLinkSlotBytes = std::int64_t{16} << 20;  // larger values go in several turns

// A side counts launches here, in memory of its own GPU.
struct LinkTurns {
  std::uint32_t turn = 0;
  std::uint32_t blocks_done = 0;  // of the running launch
};

// One side as kernels see it; passed by value. Counters wrap around.
struct LinkEnd {
  LinkTurns* turns = nullptr;
  std::byte* slots = nullptr;           // [kLinkSlots][kLinkSlotBytes], on the receiver's GPU
  std::uint32_t* sent = nullptr;        // [kLinkBlocks], on the receiver's GPU
  std::uint32_t* taken = nullptr;       // [kLinkBlocks], on the sender's GPU
  const std::uint32_t* stop = nullptr;  // on the host; not 0: the group has ended, and what is missing never comes
};

// One side's part; the communicator outlives it. When it is destroyed no rank has a launch under way.
class PeerLink {
 public:
  // That of the communicator towards the next stage, or from the previous one; makes it where there is none, together
  // with the neighbour: blocks until that has called. Errors as PeerExchange::of().
  static Result<std::shared_ptr<PeerLink>> of(Communicator& communicator, bool to_next, Device& device);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  const LinkEnd& end() const { return end_; }

 private:
  PeerLink() = default;
  Status open(Communicator& communicator, bool to_next, Device& device);

  Communicator* communicator_ = nullptr;  // once it raises the flag
  std::unique_ptr<HostAllocation> stop_;
  std::unique_ptr<Allocation> memory_;  // LinkTurns, counters; the receiver's slots
  LinkEnd end_;
};

}  // namespace tessera::cuda
