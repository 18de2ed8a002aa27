// Runs batches on a thread of its own. The requests of batches are read and run like live requests, by the same code
// and engines, but with the lowest priority. If a live request finds no room in the engine, it preempts a request of a
// batch. The preempted request continues later.
//
//   BatchRunner runner(model, files, batches, responses, hooks);
//   runner.wake();            // a batch was added, or is to be cancelled
//   runner.dispatch(events);  // with the events of every step
//
// Up to kMostBatches batches run at a time and take turns, request by request. Together they submit at most as many
// requests as the engines can run at once. While the engines have live requests, the limit is a quarter of this number.
// If the engine or the memory budget refuses a request for now, the request is submitted again later. A restarted
// server continues the batches that have not ended. Requests that have an answer do not run again.
//
// Threads: any thread may call wake() and dispatch(). The destructor leaves running requests without an answer.
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
#include "tessera/server/memory_budget.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/served_model.h"
#include "tessera/server/trace/trace_span.h"
#include "tessera/server/work/engine_jobs.h"

namespace tessera {

class BatchRunner {
 public:
  // The lowest ticket, which is a request's id in the engines, of a batch's request. Live requests have lower tickets.
  static constexpr Ticket kFirstTicket = Ticket{1} << 62;
  static constexpr std::size_t kMostBatches = 8;

  struct Hooks {
    std::function<void(Ticket, Request)> submit;
    std::function<void(Ticket)> cancel;
    std::function<std::int64_t()> engine_requests;  // returns how many requests the engines run or queue
    // Returns whether the server is shutting down, in which case it accepts no more requests.
    std::function<bool()> ends;
    std::int64_t most_requests = 1;  // the number of requests that all engines together can run at once
    // Receives the spans of batches and of their requests. This function is empty if traces are off.
    std::function<void(TraceSpan)> trace{};
  };

  // The references outlive the object. Any thread may call the hooks.
  BatchRunner(const ServedModel& model, FileStore& files, BatchStore& batches, ResponseStore& responses, Hooks hooks);
  ~BatchRunner();

  void wake();
  // Processes the events of the batches' requests, and ignores all other events.
  void dispatch(std::span<EngineThread::Event> events);
  // Returns how many requests of batches the engines run or queue.
  std::int64_t requests() const { return requests_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A request of a batch that the engine runs.
  struct Running {
    BatchRun* run = nullptr;
    BatchRun::Next request{};
    std::int64_t requests = 0;  // number of engine requests; a body may have several prompts
    std::string answer_id{};
    MemoryCharge memory{};
    Clock::time_point began{};
  };
  using Runs = std::list<std::unique_ptr<BatchRun>>;

  void work();
  std::vector<EngineThread::Event> wait();
  void take(EngineThread::Event event);
  // Starts waiting batches while fewer than kMostBatches run. Ends waiting batches that were cancelled or have expired.
  void open_batches();
  void open(const Batch& waiting);
  // Ends running batches that have expired or are to be cancelled.
  void end_early();
  // Submits requests until there is no room. Returns true if the call stopped earlier, because it has prepared
  // kMostPrepared requests.
  bool fill();
  // Starts a request. If the request is refused for now, puts it back into `run` and returns false.
  bool start(BatchRun& run, BatchRun::Next next);
  // Ends the batches whose requests have all been answered.
  void finish();
  void finish(BatchRun& run, BatchStatus status);
  void fail(BatchRun& run, const Status& why);
  void reach(const Batch& batch, BatchStatus status);
  // Changes a batch in the store. Sends the batch's span if the change ended it.
  void update(const Batch& batch, const std::function<void(Batch& batch)>& change);
  // Sends the span of a request that has ended. `facts` says what the engine did for the request.
  void trace(const BatchRun& run, const BatchRun::Next& request, Clock::time_point began, int status,
             GenerationFacts facts) const;
  // Stores the answer of a running request. `usage` means the same as in BatchAnswers::add().
  void end(BatchRun& run, const std::string& custom_id, std::string_view line, const std::optional<Usage>& usage);
  // Cancels the running requests of a batch.
  void drop(const BatchRun& run);
  std::int64_t room() const;

  const ServedModel& model_;
  FileStore& files_;
  BatchStore& batches_;
  ResponseStore& responses_;
  const Hooks hooks_;
  std::atomic<std::int64_t> requests_ = 0;  // number of batch requests in the engines; set only by `thread_`

  // Used only by `thread_`:
  EngineJobs jobs_;
  Runs runs_;  // running batches; the batch that submits the next request comes first
  std::unordered_map<EngineJobs::Id, Running> running_;
  // After a request was refused for now, no request is submitted before this time.
  Clock::time_point try_again_at_{};
  Clock::time_point looked_at_{};  // time of the last check for batches that can start, or must end early
  bool looks_ = true;              // this check is due now

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<EngineThread::Event> inbox_;  // guarded by mutex_
  bool woken_ = true;                       // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::thread thread_;                      // last member, because the thread uses the other members
};

}  // namespace tessera
