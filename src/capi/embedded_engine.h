// An engine on a thread of its own that answers requests in the server's protocols, without a server.
//
// Threads: any, for all functions but stop(), which one thread calls once, outside of callbacks. Answers are written
// and callbacks run on the engine's thread.
#pragma once

#include <functional>
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
#include "tessera/server/served_model.h"

namespace tessera::capi {

class EmbeddedEngine {
 public:
  // One request of the protocols: the engine's requests that it consists of, and its events. The first four are the
  // engine's thread's once it is submitted.
  struct Job {
    ApiJob api;
    Ticket first = 0;
    std::size_t count = 0;      // of the engine's requests, and of tickets from the first one on
    std::size_t remaining = 0;  // that have not ended
    std::shared_ptr<EventQueue> events;
  };

  // Loads the model; `options` have been through find_folders().
  static Result<std::shared_ptr<EmbeddedEngine>> create(const OpenOptions& options);
  ~EmbeddedEngine();

  const ServedModel& model() const { return model_; }
  // kFailedPrecondition after stop().
  Result<std::shared_ptr<Job>> submit(ApiJob api, std::shared_ptr<EventQueue> events);
  // Cancels the job, which ends with kCancelled unless it has ended by then.
  void cancel(std::shared_ptr<Job> job);
  Result<EngineStats> stats() const;
  Status health() const;
  // What `read` makes of the engine, between two steps; waits for it.
  Result<std::string> ask_engine(std::function<std::string(Engine&)> read);

  // Ends all jobs with kCancelled, and the thread. Further calls of the others fail.
  void stop();

 private:
  explicit EmbeddedEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  void take_all(std::span<EngineThread::Event> events);
  void take(Job& job, EngineThread::Event& event);
  // Forgets the job's tickets, cancels what still runs of it, and ends it.
  void end_with(Job& job, tessera_code code, const ApiError& error);

  std::unique_ptr<Engine> engine_;
  ServedModel model_;

  std::mutex jobs_mutex_;
  Ticket next_ticket_ = 1;
  std::unordered_map<Ticket, std::shared_ptr<Job>> jobs_;  // by each of a job's tickets that has not ended

  // Held shared by whoever uses the thread, so that it is not destroyed meanwhile.
  mutable std::shared_mutex thread_mutex_;
  bool stopped_ = false;
  std::optional<EngineThread> thread_;  // last: it ends before what it writes to
};

}  // namespace tessera::capi
