// Jobs of the server's protocols without HTTP: an engine on its own thread, and the answers here.
//
//   LocalJobs jobs(*engine);
//   jobs.start(job);
//   for (LocalJobs::Update& update : jobs.wait()) …
//
// Threads: one thread; wake() from any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/engine/engine_thread.h"
#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"

namespace tessera::cli {

class LocalJobs {
 public:
  using Id = Ticket;

  // What one event of a job came to.
  struct Update {
    Id job = 0;
    std::string events{};             // of a stream: whole server-sent events
    bool ended = false;               // the last one of this job
    std::string body{};               // of no stream, with the end
    std::optional<ApiError> error{};  // with the end
    std::int64_t prompt_tokens = 0;   // of requests that ended, to be added up
    std::int64_t output_tokens = 0;
  };

  // Nobody else touches the engine meanwhile.
  explicit LocalJobs(Engine& engine);

  // Submits the job's requests. What the job borrows outlives it.
  Id start(ApiJob made);
  // Cancels the job. No more updates of it come.
  void cancel(Id id);
  // Waits until the engine has moved a job or wake() was called. There may be no updates then.
  std::vector<Update> wait();
  void wake();

 private:
  struct Job {
    Id id = 0;
    ApiJob api;
    std::size_t count = 0;      // of requests, whose tickets begin with id
    std::size_t remaining = 0;  // that have not ended
  };
  void take(EngineThread::Event event, std::vector<Update>& updates);
  void forget(const Job& job);

  Ticket next_ticket_ = 1;
  std::unordered_map<Ticket, std::shared_ptr<Job>> jobs_;
  // Guarded by the mutex.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<EngineThread::Event> inbox_;
  bool woken_ = false;

  EngineThread engine_;  // last: its thread ends before what it writes to
};

}  // namespace tessera::cli
