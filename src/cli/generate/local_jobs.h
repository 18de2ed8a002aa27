// Runs jobs of the server's protocols without HTTP: an engine on its own thread, with the answers in this process.
//
//   LocalJobs jobs(*engine);
//   jobs.start(job);
//   for (LocalJobs::Update& update : jobs.wait()) …
//
// Threads: one thread; any thread may call wake().
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

  // What one event of a job brings.
  struct Update {
    Id job = 0;
    std::string events{};             // for a stream: whole server-sent events
    bool ended = false;               // this is the job's last update
    std::string body{};               // set at the end if the job is no stream
    std::optional<ApiError> error{};  // set at the end
    std::int64_t prompt_tokens = 0;   // prompt tokens of the requests that ended in this event; to be added up
    std::int64_t output_tokens = 0;
  };

  // Nobody else may use the engine while the object exists.
  explicit LocalJobs(Engine& engine);

  // Submits the job's requests. Everything that the job borrows must outlive it.
  Id start(ApiJob made);
  // Cancels the job, which then gets no more updates.
  void cancel(Id id);
  // Waits until the engine has advanced a job or wake() was called. The result may be empty.
  std::vector<Update> wait();
  void wake();

 private:
  struct Job {
    Id id = 0;
    ApiJob api;
    std::size_t count = 0;      // number of requests; their tickets begin with id
    std::size_t remaining = 0;  // requests that have not ended
  };
  void take(EngineThread::Event event, std::vector<Update>& updates);
  void forget(const Job& job);

  Ticket next_ticket_ = 1;
  std::unordered_map<Ticket, std::shared_ptr<Job>> jobs_;
  // Guarded by mutex_:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<EngineThread::Event> inbox_;
  bool woken_ = false;

  EngineThread engine_;  // last member: its thread ends before what it writes to
};

}  // namespace tessera::cli
