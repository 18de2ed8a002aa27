// An engine that runs on a thread of its own and answers requests in the server's protocols, without a server.
//
// Threads: any thread may call any function except stop(), which one thread calls once, outside callbacks. The engine's
// thread writes answers and runs callbacks. A forked process has no such thread: there submit(), stats(),
// health(), post() and ask_engine() return kFailedPrecondition, cancel() does nothing, and stop() must not be called.
#pragma once

#include <sys/types.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tessera/base/status.h"
#include "tessera/capi/event_queue.h"
#include "tessera/capi/open_options.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/engine_thread.h"
#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/events/kv_events.h"
#include "tessera/server/served_model.h"

namespace tessera::capi {

class EmbeddedEngine {
 public:
  // One request of the server's protocols, with its engine requests and its events. After submission, only the engine's
  // thread uses the first four members.
  struct Job {
    ApiJob api;
    Ticket first = 0;
    std::size_t count = 0;      // number of engine requests; `first` is the first of their consecutive tickets
    std::size_t remaining = 0;  // engine requests that have not ended
    std::shared_ptr<EventQueue> events;
  };

  // Loads the model. Precondition: find_folders() was called for `options`. Returns kFailedPrecondition in a process
  // that was forked after the first call of create(), because the CPU's worker threads and a GPU's context do not
  // survive a fork.
  static Result<std::shared_ptr<EmbeddedEngine>> create(const OpenOptions& options);
  ~EmbeddedEngine();

  const ServedModel& model() const { return model_; }
  // Returns kFailedPrecondition in a process that was forked after create().
  Status check_process() const;
  // Submits the job's engine requests. Returns kFailedPrecondition after stop().
  Result<std::shared_ptr<Job>> submit(ApiJob api, std::shared_ptr<EventQueue> events);
  // Cancels the job. The job ends with kCancelled unless it has already ended.
  void cancel(std::shared_ptr<Job> job);
  Result<EngineStats> stats() const;
  Status health() const;
  // Runs `task` between two steps of the engine. Returns kFailedPrecondition after stop().
  Status post(std::function<void(Engine&)> task);
  // Waits for the value that a posted task gives to its promise. Returns an error if the engine's thread dropped the
  // task, and with it the promise.
  template <class T>
  Result<T> await(std::future<T> future) const {
    try {
      return future.get();
    } catch (const std::future_error&) {
      TRY(health());
      return internal_error("the engine's thread dropped the call; repeat it");
    }
  }
  // Calls `read` between two steps of the engine. Waits for the text that `read` returns, and returns it.
  Result<std::string> ask_engine(std::function<std::string(Engine&)> read);

  // Ends all jobs with kCancelled, and ends the thread. Afterwards, all other functions that need the thread fail.
  void stop();

 private:
  explicit EmbeddedEngine(std::unique_ptr<Engine> engine);
  void take_all(std::span<EngineThread::Event> events);
  void take(Job& job, EngineThread::Event& event);
  // Removes the job's tickets from `jobs_`, cancels the job's running requests, and ends the job.
  void end_with(Job& job, tessera_code code, const ApiError& error);

  const pid_t process_;
  std::unique_ptr<Engine> engine_;
  ServedModel model_;
  std::unique_ptr<KvEvents> kv_events_;  // destroyed after `thread_` and before `engine_`

  std::mutex jobs_mutex_;
  Ticket next_ticket_ = 1;
  std::unordered_map<Ticket, std::shared_ptr<Job>> jobs_;  // keyed by every ticket of a job that has not ended

  // Functions that use the thread hold this mutex in shared mode, so that the thread is not destroyed meanwhile.
  mutable std::shared_mutex thread_mutex_;
  bool stopped_ = false;
  std::optional<EngineThread> thread_;  // the last member: it ends before the members that it uses
};

}  // namespace tessera::capi
