// Engines of one model, each on a thread of its own, that share the requests: more of them are served at once, on more
// devices. replica_choice.h says which one gets a request.
//
//   Replicas replicas(engines, [&](std::span<EngineThread::Event> events) { … });
//   replicas.submit(ticket, std::move(request));
//
// An engine that fails for good ends its requests with its error and gets no more; the others serve on.
//
// Threads: all functions may be called from any thread. The sink runs on the threads of the engines, in each as
// EngineThread's, and at times on several at once. Nothing else uses the engines until the Replicas are destroyed.
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
  // One engine at least, ReplicaChoice::kMostReplicas at most, of one model and with the same options.
  // `failed` is called for each engine that fails for good, as EngineThread's.
  Replicas(std::span<Engine* const> engines, EngineThread::Sink sink, const std::function<void()>& failed = {});

  // As EngineThread's.
  void submit(Ticket ticket, Request request);
  void cancel(Ticket ticket);
  // Runs `task` between two steps of the first engine, or of each.
  void post(std::function<void(Engine&)> task);
  void post_to_all(const std::function<void(Engine&)>& task);
  void forget_prefixes();

  int size() const { return static_cast<int>(threads_.size()); }
  // As of the last steps: of one engine, and of each.
  EngineStats stats(int replica) const { return threads_[static_cast<std::size_t>(replica)]->stats(); }
  std::vector<EngineStats> each_stats() const;
  // Of all together; graphs are the first one's.
  EngineStats stats() const { return sum_of(each_stats()); }
  // Ok while an engine serves, or why the last of them does not.
  Status health() const;
  Status health(int replica) const { return threads_[static_cast<std::size_t>(replica)]->health(); }

 private:
  int choose(Ticket ticket, std::span<const TokenId> prompt);
  void leave_out_failed();
  void follow(std::span<EngineThread::Event> events);

  EngineThread::Sink sink_;
  std::mutex mutex_;
  std::optional<ReplicaChoice> choice_;                 // under the mutex; none where there is one engine
  std::vector<std::unique_ptr<EngineThread>> threads_;  // last: they end before what they call
};

}  // namespace tessera
