// Several engines of one model, each on its own thread. They share the requests, so that more devices can serve more
// requests. replica_choice.h chooses the engine of a request.
//
//   Replicas replicas(engines, [&](std::span<EngineThread::Event> events) { … });
//   replicas.submit(ticket, std::move(request));
//
// If an engine fails for good, its requests end with its error, and it gets no more requests. The other engines
// continue.
//
// Threads: any thread may call all functions. The sink (the function that receives the events) runs on the engines'
// threads (see EngineThread), sometimes on several of them at once. Nothing else may use the engines until the Replicas
// are destroyed.
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
  // `engines` holds 1 to ReplicaChoice::kMostReplicas engines of one model with the same options. `failed` is called
  // for each engine that fails for good, as in EngineThread.
  Replicas(std::span<Engine* const> engines, EngineThread::Sink sink, const std::function<void()>& failed = {});

  // These three functions do the same as in EngineThread.
  void submit(Ticket ticket, Request request);
  void cancel(Ticket ticket);
  void abort(Ticket ticket);
  // post() runs `task` on the first engine, between two of its steps. post_to_all() does the same on each engine.
  void post(std::function<void(Engine&)> task);
  void post_to_all(const std::function<void(Engine&)>& task);
  void forget_prefixes();

  int size() const { return static_cast<int>(threads_.size()); }
  // Return the statistics as of the last step, either of one engine or of every engine.
  EngineStats stats(int replica) const { return threads_[static_cast<std::size_t>(replica)]->stats(); }
  std::vector<EngineStats> each_stats() const;
  // Returns the statistics summed over all engines. The statistics of graphs are those of the first engine.
  EngineStats stats() const { return sum_of(each_stats()); }
  // Returns ok while any engine serves. If none does, returns the error of the engine with the highest index.
  Status health() const;
  Status health(int replica) const { return threads_[static_cast<std::size_t>(replica)]->health(); }

 private:
  int choose(Ticket ticket, const Request& request);
  void leave_out_failed();
  void follow(std::span<EngineThread::Event> events);

  EngineThread::Sink sink_;
  std::mutex mutex_;
  std::optional<ReplicaChoice> choice_;  // guarded by the mutex; none if there is one engine
  // The last member, so that the threads end before the members that they use.
  std::vector<std::unique_ptr<EngineThread>> threads_;
};

}  // namespace tessera
