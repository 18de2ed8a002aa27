// Engines of one model, each on its own thread, that share the requests to serve more of them on more devices.
// replica_choice.h chooses the engine of a request.
//
//   Replicas replicas(engines, [&](std::span<EngineThread::Event> events) { … });
//   replicas.submit(ticket, std::move(request));
//
// An engine that fails for good ends its requests with its error and gets no more requests; the others continue.
//
// Threads: any thread may call all functions. The sink runs on the engines' threads, as EngineThread's does, at times
// on several of them at once. Nothing else may use the engines until the Replicas are destroyed.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tessera/engine/engine_thread.h"
#include "tessera/engine/ranks/replica_choice.h"

namespace tessera {

class Replicas {
 public:
  // `engines` are 1 to ReplicaChoice::kMostReplicas engines of one model with the same options. `failed` is called for
  // each engine that fails for good, as in EngineThread.
  Replicas(std::span<Engine* const> engines, EngineThread::Sink sink, const std::function<void()>& failed = {});

  // See EngineThread.
  void submit(Ticket ticket, Request request);
  void cancel(Ticket ticket);
  void abort(Ticket ticket);
  // Runs `task` between two steps of the first engine, or of each engine.
  void post(std::function<void(Engine&)> task);
  void post_to_all(const std::function<void(Engine&)>& task);
  void forget_prefixes();

  int size() const { return static_cast<int>(threads_.size()); }
  // Return the statistics of one engine, or of each, as of their last steps.
  EngineStats stats(int replica) const { return threads_[static_cast<std::size_t>(replica)]->stats(); }
  std::vector<EngineStats> each_stats() const;
  // Returns the sums over all engines; the graphs are the first one's.
  EngineStats stats() const { return sum_of(each_stats()); }
  // Returns ok while an engine serves; otherwise why the last one no longer does.
  Status health() const;
  Status health(int replica) const { return threads_[static_cast<std::size_t>(replica)]->health(); }

 private:
  int choose(Ticket ticket, std::span<const TokenId> prompt);
  void leave_out_failed();
  void follow(std::span<EngineThread::Event> events);

  EngineThread::Sink sink_;
  std::mutex mutex_;
  std::optional<ReplicaChoice> choice_;  // guarded by the mutex; none if there is one engine
  // Last member: the threads end before the members that they call.
  std::vector<std::unique_ptr<EngineThread>> threads_;
};

}  // namespace tessera
