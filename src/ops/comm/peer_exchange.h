// Memory through which the GPUs of a tensor-parallel group, driven by threads of one process, hand values to one
// another without a host, a barrier or a flag: every rank has a mailbox on its GPU, and the others write into it.
//
// A word of 32 bits says by itself whether it is there: before a turn all words of the mailbox are kAbsent (-0.0 as
// float32; the pair +0, -0 as 16-bit floats), and senders turn a kAbsent in their data into zeros, which are equal as
// numbers. A mailbox has three buffers that take turns. In turn t a rank writes to buffer t mod 3 of the others, reads
// its own, and clears the one of turn t - 1. That is early enough: another rank writes to it again in turn t + 2, after
// it has received values of turn t + 1, which this rank sends after turn t. The number of the turn is in device memory,
// so that replays of recorded graphs go on counting. (Published as the Lamport all-reduce of TensorRT-LLM.)
//
// All launches of a group wait for one another: every rank makes the same calls in the same order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/comm/collective.h"

namespace tessera::cuda {

inline constexpr int kMostPeers = 8;
inline constexpr int kBuffers = 3;
inline constexpr std::uint32_t kAbsent = 0x8000'0000u;

// What a rank counts, in its device memory.
struct Turns {
  std::uint32_t turn = 0;
  std::uint32_t blocks_done = 0;      // of the running launch
  std::uint32_t used[kBuffers] = {};  // words from the start of a buffer that the others wrote in its last turn
};

// As kernels see it; passed by value.
struct Peers {
  int rank = 0;
  int ranks = 1;
  std::int64_t buffer_words = 0;
  Turns* turns = nullptr;                     // this rank's
  std::uint32_t* mailboxes[kMostPeers] = {};  // of all ranks: [kBuffers][buffer_words]
  const std::uint32_t* stop = nullptr;  // on the host; not 0: the group has ended, and what is missing never comes
};

// kInternal with `what` and CUDA's words where `error` is one, which is cleared then.
Status cuda_status(cudaError_t error, std::string_view what);
// The current GPU `own` reads and writes the memory of GPU `other` from now on. kUnimplemented where it cannot.
Status reach_peer(int own, int other);

// One rank's part; the communicator outlives it. When it is destroyed no rank has a launch under way.
class PeerExchange {
 public:
  // That of the communicator; makes it where there is none, together with all other ranks: blocks until each has
  // called. kUnimplemented where GPUs of the group cannot reach each other's memory, or there are more than kMostPeers;
  // kInvalidArgument where two ranks are on one GPU.
  static Result<std::shared_ptr<PeerExchange>> of(Communicator& communicator, Device& device);
  ~PeerExchange();
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  const Peers& peers() const { return peers_; }

 private:
  PeerExchange() = default;
  Status open(Communicator& communicator, Device& device);

  Communicator* communicator_ = nullptr;  // once it raises the flag
  std::unique_ptr<HostAllocation> stop_;
  std::unique_ptr<Allocation> memory_;  // Turns, then the mailbox
  Peers peers_;
};

}  // namespace tessera::cuda
