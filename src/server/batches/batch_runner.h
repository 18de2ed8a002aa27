// Answers batches on a thread of its own. Their requests go through the readers of the live routes and to the same
// engines, with the lowest priority: a live request that finds no room takes that of a batch's request, which goes on
// later.
//
//   BatchRunner runner(model, files, batches, responses, hooks);
//   runner.wake();            // a batch was added, or is to be cancelled
//   runner.dispatch(events);  // with the events of every step
//
// Up to kMostBatches batches run at a time and take turns, request by request. While the engines have live requests, a
// quarter of what the engines run at once may be batches' requests, else all. A request that the engine or the memory
// budget refuses for now is tried again. When the server starts, batches that have not ended go on; requests that have
// an answer do not run again.
//
// Threads: wake() and dispatch() may be called by any thread. The destructor leaves requests that run without an
// answer.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tessera/server/batches/batch_run.h"
#include "tessera/server/batches/batch_store.h"
#include "tessera/server/batches/file_store.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/served_model.h"
#include "tessera/server/work/engine_jobs.h"
#include "tessera/server/work/memory_budget.h"

namespace tessera {

class BatchRunner {
 public:
  // Tickets from this one on belong to batches.
  static constexpr Ticket kFirstTicket = Ticket{1} << 62;
  static constexpr std::size_t kMostBatches = 8;

  struct Hooks {
    std::function<void(Ticket, Request)> submit;
    std::function<void(Ticket)> cancel;
    std::function<std::int64_t()> engine_requests;  // requests that the engines run, or that wait for them
    std::function<bool()> ends;                     // the server takes no more requests
    std::int64_t most_requests = 1;                 // requests that all engines run at once
  };

  // The references outlive the object. Any thread may call the hooks.
  BatchRunner(const ServedModel& model, FileStore& files, BatchStore& batches, ResponseStore& responses, Hooks hooks);
  ~BatchRunner();

  void wake();
  // Takes the events of the batches' requests; leaves the others as they are.
  void dispatch(std::span<EngineThread::Event> events);
  // Returns the requests that the engines have for batches.
  std::int64_t requests() const { return requests_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A request in the engine.
  struct Running {
    BatchRun* run = nullptr;
    BatchRun::Next request{};
    std::int64_t requests = 0;  // requests to the engine; a body may have several prompts
    std::string answer_id{};
    MemoryCharge memory{};
  };
  using Runs = std::list<std::unique_ptr<BatchRun>>;

  void work();
  std::vector<EngineThread::Event> wait();
  void take(EngineThread::Event event);
  // Starts batches that wait for their turn.
  void open_batches();
  void open(const Batch& waiting);
  // Ends batches whose time is over or that are to be cancelled.
  void end_early();
  // Submits requests until there is no room. Returns whether more could be submitted at once.
  bool fill();
  // Returns false if there is no room for the request now.
  bool start(BatchRun& run, BatchRun::Next next);
  // Ends the batches whose requests have all ended.
  void finish();
  void finish(BatchRun& run, BatchStatus status);
  void fail(BatchRun& run, const Status& why);
  void reach(const Batch& batch, BatchStatus status);
  // Keeps the answer of a request that runs.
  void end(BatchRun& run, const std::string& custom_id, std::string_view line, bool completed);
  // Cancels the requests of a batch.
  void drop(const BatchRun& run);
  std::int64_t room() const;

  const ServedModel& model_;
  FileStore& files_;
  BatchStore& batches_;
  ResponseStore& responses_;
  const Hooks hooks_;
  std::atomic<std::int64_t> requests_ = 0;  // the engine's requests that run for batches; changed by the thread alone

  // Used by the thread alone:
  EngineJobs jobs_;
  Runs runs_;  // in the order of their turns
  std::unordered_map<EngineJobs::Id, Running> running_;
  Clock::time_point try_again_at_{};  // requests were refused for now; none is submitted before
  Clock::time_point looked_at_{};     // when batches that wait, end or expire were last looked for
  bool looks_ = true;                 // they are to be looked for now

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<EngineThread::Event> inbox_;  // guarded by the mutex
  bool woken_ = true;                       // guarded by the mutex
  bool stopping_ = false;                   // guarded by the mutex
  std::thread thread_;                      // last member: it uses the others
};

}  // namespace tessera
