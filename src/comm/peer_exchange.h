// Exchanges values between the GPUs of a tensor-parallel group whose ranks are threads of one process. Every rank has a
// mailbox on its GPU, and the other ranks write into it. The content of a 32-bit word shows whether the word has
// arrived, as described below. The exchange therefore needs no host code, no barrier, and no flag for arrived values.
//
// One launch of the exchange is a turn. A mailbox has three buffers. In turn t a rank writes to buffer t mod 3 of every
// other rank's mailbox, and reads buffer t mod 3 of its own mailbox. Before turn t all words of these buffers are
// kAbsent, which is -0.0 as a float32, or the pair +0 and -0 as 16-bit floats. If a word is not kAbsent, it has
// arrived. A sender replaces a kAbsent in its data with zeros, which are numerically equal. In turn t a rank also sets
// the words of its buffer of turn t - 1 to kAbsent again. This is early enough, because other ranks write to that
// buffer again only in turn t + 2. Another rank begins turn t + 2 only after it has received this rank's values of turn
// t + 1, which this rank sends after its turn t. The turn number is in device memory, so replays of recorded graphs
// continue the count. (TensorRT-LLM published this method as the Lamport all-reduce.)
//
// All launches of a group wait for one another, so all ranks must make the same calls in the same order.
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
  std::uint32_t blocks_done = 0;  // number of finished blocks of the running launch
  // used[b] is the number of words that the other ranks wrote to buffer b of this rank's mailbox in the last turn that
  // used this buffer. The words lie at the start of the buffer.
  std::uint32_t used[kBuffers] = {};
};

// The arguments of the exchange's kernels, which are passed by value.
struct Peers {
  int rank = 0;
  int ranks = 1;
  std::int64_t buffer_words = 0;
  Turns* turns = nullptr;                     // this rank's counters
  std::uint32_t* mailboxes[kMostPeers] = {};  // mailboxes of all ranks, each [kBuffers][buffer_words]
  // A flag in host memory. If it is not 0, the group has ended, and missing values will never arrive.
  const std::uint32_t* stop = nullptr;
};

// Returns ok if `error` is cudaSuccess. Otherwise returns kInternal with `what` and CUDA's message, and clears the last
// error of the CUDA runtime.
Status cuda_status(cudaError_t error, std::string_view what);
// Lets the current GPU `own` access the memory of GPU `other` from now on. Returns kUnimplemented if the two GPUs do
// not support this.
Status reach_peer(int own, int other);

// Sets all words of the mailbox to kAbsent on the current GPU, and waits until this is done.
cudaError_t clear_mailbox(std::byte* mailbox, std::size_t bytes);

// One rank's part of the exchange. The Communicator must outlive the exchange. The exchange may be destroyed once no
// launch of the rank is running.
class PeerExchange final : public DeviceExchange {
 public:
  // Returns the communicator's exchange. If there is none, makes it together with all other ranks. The call then blocks
  // until each of these ranks has called of(). Returns kUnimplemented if GPUs of the group cannot access each other's
  // memory or there are more than kMostPeers ranks. Returns kInvalidArgument if two ranks are on the same GPU.
  static Result<std::shared_ptr<PeerExchange>> of(Communicator& communicator, Device& device);
  ~PeerExchange() override;
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  const Peers& peers() const { return peers_; }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(memory_->size()); }

 private:
  PeerExchange() = default;
  Status open(Communicator& communicator, Device& device);

  Communicator* communicator_ = nullptr;  // null until the communicator holds the flag in stop_
  std::unique_ptr<HostAllocation> stop_;
  std::unique_ptr<Allocation> memory_;  // holds Turns, followed by the mailbox
  Peers peers_;
};

}  // namespace tessera::cuda
