// Helpers for engines that share experts but have their own requests, on one node or several, all in this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/testing/nodes.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/engine_thread.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/ranks/lockstep.h"

namespace tessera::testing {

using Engines = std::vector<std::unique_ptr<Engine>>;

// Runs body(rank), which returns a Status, on a thread for each rank; returns the first error, or ok.
template <class Body>
Status on_ranks(int ranks, const Body& body) {
  std::vector<std::future<Status>> running;
  for (int r = 0; r < ranks; ++r) running.push_back(std::async(std::launch::async, [&body, r] { return body(r); }));
  Status failed;
  for (std::future<Status>& one : running)
    if (Status status = one.get(); failed.ok()) failed = std::move(status);
  return failed;
}

// Starts the engines of `nnodes` nodes, each with its own end of the connections, as if the nodes were processes.
inline Result<Engines> start(EngineOptions options) {
  const std::chrono::seconds limit(60);
  std::vector<std::shared_ptr<Lockstep>> groups;
  if (options.nnodes == 1) {
    groups.push_back(Lockstep::create(options.replicas, limit));
  } else {
    for (std::shared_ptr<NodeGroup>& nodes : join_nodes_here(options.nnodes))
      groups.push_back(Lockstep::create(options.replicas, limit, std::move(nodes)));
    options.dist_init_addr = "127.0.0.1:1";  // any address, because the nodes have already joined
  }
  Engines engines(static_cast<std::size_t>(options.replicas));
  TRY(on_ranks(options.replicas, [&](int r) -> Status {
    EngineOptions own = options;
    own.replica = r;
    own.node_rank = r / replicas_here(options);
    own.lockstep = groups[static_cast<std::size_t>(own.node_rank)];
    const std::string kind = options.device.substr(0, options.device.find(':'));
    if (options.nnodes > 1 && kind != "cpu")
      own.device = kind + ":" + std::to_string(own.node_rank * replicas_here(options));
    Result<std::unique_ptr<Engine>> engine = Engine::create(own);
    if (!engine.ok()) own.lockstep->communicator(r).abort(engine.status().message());
    engines[static_cast<std::size_t>(r)] = TRY(std::move(engine));
    return ok_status();
  }));
  return engines;
}

// Runs requests on the engines until all have ended; stores completions and errors by rank and index.
class Served {
 public:
  // requests[r] are the requests of rank r.
  Served(const Engines& engines, std::vector<std::vector<Request>> requests) {
    std::size_t left = 0;
    for (const std::vector<Request>& own : requests) {
      left += own.size();
      done_.emplace_back(own.size());
      errors_.emplace_back(own.size());
    }
    {
      std::vector<std::unique_ptr<EngineThread>> threads;
      for (std::size_t r = 0; r < engines.size(); ++r) {
        threads.push_back(std::make_unique<EngineThread>(*engines[r], [this, r](std::span<EngineThread::Event> events) {
          const std::lock_guard lock(mutex_);
          for (EngineThread::Event& event : events) take(r, event);
        }));
      }
      for (std::size_t r = 0; r < requests.size(); ++r)
        for (std::size_t i = 0; i < requests[r].size(); ++i)
          threads[r]->submit(static_cast<Ticket>(i), std::move(requests[r][i]));
      std::unique_lock lock(mutex_);
      EXPECT_TRUE(moved_.wait_for(lock, std::chrono::seconds(120), [&] { return ended_ == left; }));
    }
  }
  // Returns the completions of a rank. Fails the test if a request has failed.
  const std::vector<Completion>& of(std::size_t rank) const {
    for (const Status& error : errors_[rank]) EXPECT_TRUE(error.ok()) << "rank " << rank << ": " << error.to_string();
    return done_[rank];
  }
  const std::vector<Status>& errors(std::size_t rank) const { return errors_[rank]; }

 private:
  void take(std::size_t rank, EngineThread::Event& event) {
    if (event.event.finish == FinishReason::kNone) return;
    errors_[rank][static_cast<std::size_t>(event.ticket)] = event.event.error;
    if (event.end != nullptr) done_[rank][static_cast<std::size_t>(event.ticket)] = std::move(*event.end);
    ++ended_;
    moved_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable moved_;
  std::size_t ended_ = 0;
  std::vector<std::vector<Completion>> done_;
  std::vector<std::vector<Status>> errors_;
};

}  // namespace tessera::testing
