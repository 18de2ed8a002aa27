// Runs jobs of the server's protocols without HTTP: an engine on its own thread, with the answers in this process.
//
//   LocalJobs jobs(*engine);
//   jobs.start(job);
//   for (LocalJobs::Update& update : jobs.wait()) …
//
// Threads: one thread; any thread may call wake().
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/server/work/engine_jobs.h"

namespace tessera::cli {

class LocalJobs {
 public:
  using Id = EngineJobs::Id;
  using Update = EngineJobs::Update;

  // Nobody else may use the engine while the object exists.
  explicit LocalJobs(Engine& engine);

  // Submits the job's requests. Everything that the job borrows must outlive it.
  Id start(ApiJob made) { return jobs_.start(std::move(made)); }
  // Cancels the job, which then gets no more updates.
  void cancel(Id id) { jobs_.cancel(id); }
  // Waits until the engine has advanced a job or wake() was called. The result may be empty.
  std::vector<Update> wait();
  void wake();

 private:
  EngineJobs jobs_;
  // Guarded by mutex_:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<EngineThread::Event> inbox_;
  bool woken_ = false;

  EngineThread engine_;  // last member: its thread ends before what it writes to
};

}  // namespace tessera::cli
