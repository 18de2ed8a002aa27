// DP attention: engines that share the experts of one model and compute attention for requests of their own. Each is a
// rank with its own scheduler, pages and captured graphs, and all make their forwards together.
//
//   const std::shared_ptr<Lockstep> group = Lockstep::create(2, limit);
//   // engine r: EngineOptions{.replica = r, .replicas = 2, .dp_attention = true, .lockstep = group}
//
// A rank that has a batch begins a forward and calls the other ranks, which join with a batch of their own or with
// padding. So the n-th forward of every rank is the same forward. Forwards run only while some rank has requests. If a
// rank fails or its engine ends, the group ends.
//
// With a NodeGroup, several processes each have an equal number of ranks, and each node has its own requests.
//
// Threads: begin(), awaits(), agree() and the communicators belong to the rank's thread; any thread may call the rest.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"
#include "tessera/engine/ranks/common_end.h"

namespace tessera {

class Lockstep {
 public:
  // `ranks` counts the ranks of all nodes. `limit` applies to every wait for another rank. Starts `nodes`, the
  // connections to the other processes. Null means that there is one process.
  static std::shared_ptr<Lockstep> create(int ranks, std::chrono::milliseconds limit,
                                          std::shared_ptr<NodeGroup> nodes = nullptr);
  ~Lockstep();
  Lockstep(const Lockstep&) = delete;
  Lockstep& operator=(const Lockstep&) = delete;

  // Returns the communicator of a rank. In this class, every argument `rank` is a rank of this process.
  Communicator& communicator(int rank) { return *group_[index(rank)]; }
  // Returns ok, or kDeviceLost with the reason why the group has ended.
  Status health() const;
  // Returns the object that coordinates the end of the nodes' servers, or null if there is one process.
  CommonEnd* common_end() { return end_ ? &*end_ : nullptr; }

  // Returns ok if every rank has these graph sizes, so that a forward uses the same size on all ranks. Otherwise
  // returns kFailedPrecondition. Blocks until all ranks have called agree().
  Status agree(int rank, std::span<const std::int64_t> prefill_sizes, std::span<const std::int64_t> decode_sizes);
  // Waits until all ranks have called meet(), for at most `limit`.
  Status meet(int rank, std::chrono::milliseconds limit);
  // Records that the rank takes part in its next forward, either as the first rank or because another rank awaits it.
  void begin(int rank);
  // Returns whether another rank has begun a forward that this rank has not joined.
  bool awaits(int rank) const { return begun_.load() > joined_[index(rank)]; }
  // Sets a function that wakes the rank. The function is called on another thread when another rank awaits this one or
  // the group has ended. An empty function removes it.
  void when_awaited(int rank, std::function<void()> call);

 private:
  Lockstep(std::vector<std::unique_ptr<Communicator>> group, std::shared_ptr<NodeGroup> nodes);
  std::size_t index(int rank) const { return static_cast<std::size_t>(rank - group_.front()->rank()); }
  bool raise_begun(std::int64_t forward);
  void call_all_but(int rank);
  void tell_nodes(std::int64_t forward, int except = 0);
  Status take_forward(int node, std::span<const std::byte> payload);

  std::shared_ptr<NodeGroup> nodes_;                  // null: there is only one process
  std::optional<CommonEnd> end_;                      // set if there are nodes
  std::vector<std::unique_ptr<Communicator>> group_;  // communicators of this process's ranks
  std::atomic<std::int64_t> begun_ = 0;               // number of forwards that have begun
  std::vector<std::int64_t> joined_;                  // [ranks here]: number of forwards that the rank has joined
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;  // [ranks here]: set by when_awaited(); guarded by the mutex
};

}  // namespace tessera
