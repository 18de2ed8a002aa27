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
// Threads: begin(), awaits(), agree() and communicators belong to the rank's thread; the rest may be called from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/collective.h"

namespace tessera {

class Lockstep {
 public:
  // `limit` is that of every wait for another rank.
  static std::shared_ptr<Lockstep> create(int ranks, std::chrono::milliseconds limit);

  Communicator& communicator(int rank) { return *group_[static_cast<std::size_t>(rank)]; }
  // Ok, or why the group has ended: kDeviceLost.
  Status health() const;

  // Ok where every rank has these sizes of graphs, so that a forward takes the same one on all; else
  // kFailedPrecondition. Blocks until all ranks have called it.
  Status agree(int rank, std::span<const std::int64_t> prefill_sizes, std::span<const std::int64_t> decode_sizes);
  // The rank takes part in its next forward, as the first or because it is awaited.
  void begin(int rank);
  // Whether another rank has begun a forward in which this one is missing.
  bool awaits(int rank) const { return begun_.load() > joined_[static_cast<std::size_t>(rank)]; }
  // The rank's engine fails, which ends the group: calls the others, that none sleeps on.
  void fail(int rank, std::string_view reason);
  // `call` is made on another rank's thread where the rank is awaited, or the other one fails; none takes it back.
  void when_awaited(int rank, std::function<void()> call);

 private:
  explicit Lockstep(std::vector<std::unique_ptr<Communicator>> group);
  void call_others(int rank);

  std::vector<std::unique_ptr<Communicator>> group_;  // [ranks]
  std::atomic<std::int64_t> begun_ = 0;               // forwards
  std::vector<std::int64_t> joined_;                  // [ranks]: forwards, each by its rank's thread
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;  // [ranks], under the mutex
};

}  // namespace tessera
