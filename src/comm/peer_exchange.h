// Exchanges values between the GPUs of a tensor-parallel group that threads of one process drive. No host, barrier or
// flag takes part: every rank has a mailbox on its GPU, and the other ranks write into it.
//
// A word of 32 bits shows by itself whether it has arrived. Before a turn, all words of the mailbox are kAbsent (-0.0
// as float32; the pair +0, -0 as 16-bit floats). A sender replaces a kAbsent in its data by zeros, which are equal as
// numbers. A mailbox has three buffers that take turns. In turn t a rank writes to buffer t mod 3 of the others, reads
// its own, and clears the buffer of turn t - 1. That is early enough: another rank writes to the cleared buffer again
// in turn t + 2, after it has received values of turn t + 1, which this rank sends after turn t. The number of the turn
// is in device memory, so that replays of recorded graphs continue the count. (Published as the Lamport all-reduce of
// TensorRT-LLM.)
//
// All launches of a group wait for one another, so every rank must make the same calls in the same order.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/peer_sizes.h"
#include "tessera/device/device.h"

namespace tessera::cuda {

inline constexpr int kMostPeers = 8;
inline constexpr std::uint32_t kAbsent = 0x8000'0000u;

// A rank's counters, in its device memory.
struct Turns {
  std::uint32_t turn = 0;
  std::uint32_t blocks_done = 0;      // blocks of the running launch that are done
  std::uint32_t used[kBuffers] = {};  // words that the others wrote in the buffer's last turn, from its start
};

// The part of the exchange that kernels see; passed by value.
struct Peers {
  int rank = 0;
  int ranks = 1;
  std::int64_t buffer_words = 0;
  Turns* turns = nullptr;                     // this rank's counters
  std::uint32_t* mailboxes[kMostPeers] = {};  // mailboxes of all ranks: [kBuffers][buffer_words]
  const std::uint32_t* stop = nullptr;        // on the host; not 0: the group has ended, and missing values never come
};

// Returns kInternal with `what` and CUDA's message if `error` is an error, and clears it.
Status cuda_status(cudaError_t error, std::string_view what);
// Lets the current GPU `own` read and write the memory of GPU `other` from now on. kUnimplemented if it cannot.
Status reach_peer(int own, int other);

// Sets all words of the mailbox to kAbsent on the current GPU, and waits for it.
cudaError_t clear_mailbox(std::byte* mailbox, std::size_t bytes);

// One rank's part of the exchange. The communicator outlives it. It may be destroyed when the rank has no launch under
// way.
class PeerExchange final : public DeviceExchange {
 public:
  // Returns the communicator's exchange. If there is none, makes it together with all other ranks: blocks until each
  // has called. kUnimplemented if GPUs of the group cannot reach each other's memory, or there are more than
  // kMostPeers; kInvalidArgument if two ranks are on one GPU.
  static Result<std::shared_ptr<PeerExchange>> of(Communicator& communicator, Device& device);
  ~PeerExchange() override;
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  const Peers& peers() const { return peers_; }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(memory_->size()); }

 private:
  PeerExchange() = default;
  Status open(Communicator& communicator, Device& device);

  Communicator* communicator_ = nullptr;  // null until it has the flag to raise
  std::unique_ptr<HostAllocation> stop_;
  std::unique_ptr<Allocation> memory_;  // Turns, then the mailbox
  Peers peers_;
};

}  // namespace tessera::cuda
