// Engines that share the experts of one model and attend to requests of their own (DP attention): each is a rank, with
// a scheduler, pages and captured graphs, and all make their forwards together.
//
//   const std::shared_ptr<Lockstep> group = Lockstep::create(2, limit);
//   // engine r: EngineOptions{.replica = r, .replicas = 2, .dp_attention = true, .lockstep = group}
//
// A rank that has a batch begins a forward, which calls the others; they take part with a batch of their own or with
// padding. So the n-th forward of every rank is the same one, and where no rank has work none is made. A rank that
// fails, or whose engine ends, ends the group.
//
// With a NodeGroup the ranks are in several processes, as many in each, and each node has requests of its own.
//
// Threads: begin(), awaits(), agree() and communicators belong to the rank's thread; the rest may be called from any.
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
#include "tessera/engine/ranks/common_end.h"
#include "tessera/ops/comm/collective.h"

namespace tessera {

class Lockstep {
 public:
  // `limit` is that of every wait for another rank. `ranks` of all nodes; `nodes` are started here. Null: one process.
  static std::shared_ptr<Lockstep> create(int ranks, std::chrono::milliseconds limit,
                                          std::shared_ptr<NodeGroup> nodes = nullptr);
  ~Lockstep();
  Lockstep(const Lockstep&) = delete;
  Lockstep& operator=(const Lockstep&) = delete;

  // Of a rank of this process, as all that takes a rank.
  Communicator& communicator(int rank) { return *group_[index(rank)]; }
  // Ok, or why the group has ended: kDeviceLost.
  Status health() const;
  // How the nodes' servers end. Null: one process.
  CommonEnd* common_end() { return end_ ? &*end_ : nullptr; }

  // Ok where every rank has these sizes of graphs, so that a forward takes the same one on all; else
  // kFailedPrecondition. Blocks until all ranks have called it.
  Status agree(int rank, std::span<const std::int64_t> prefill_sizes, std::span<const std::int64_t> decode_sizes);
  // Blocks until all ranks have called it, for `limit` at most.
  Status meet(int rank, std::chrono::milliseconds limit);
  // The rank takes part in its next forward, as the first or because it is awaited.
  void begin(int rank);
  // Whether another rank has begun a forward in which this one is missing.
  bool awaits(int rank) const { return begun_.load() > joined_[index(rank)]; }
  // `call` is made on another thread where the rank is awaited or the group has ended, that it does not sleep on; none
  // takes it back.
  void when_awaited(int rank, std::function<void()> call);

 private:
  Lockstep(std::vector<std::unique_ptr<Communicator>> group, std::shared_ptr<NodeGroup> nodes);
  std::size_t index(int rank) const { return static_cast<std::size_t>(rank - group_.front()->rank()); }
  bool raise_begun(std::int64_t forward);
  void call_all_but(int rank);
  void tell_nodes(std::int64_t forward, int except = 0);
  Status take_forward(int node, std::span<const std::byte> payload);

  std::shared_ptr<NodeGroup> nodes_;                  // null: one process
  std::optional<CommonEnd> end_;                      // with nodes
  std::vector<std::unique_ptr<Communicator>> group_;  // of the ranks here
  std::atomic<std::int64_t> begun_ = 0;               // forwards
  std::vector<std::int64_t> joined_;                  // forwards of each rank here, each by its rank's thread
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;  // of each rank here, under the mutex
};

}  // namespace tessera
