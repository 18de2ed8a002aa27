// Runs jobs of the server's protocols without HTTP: the engine has a thread of its own, and answers stay in this
// process.
//
//   LocalJobs jobs(*engine);
//   jobs.start(job);
//   for (LocalJobs::Update& update : jobs.wait()) …
//
// Threads: one thread uses the object. Any thread may call wake().
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

  // No other code may use the engine while the object exists.
  explicit LocalJobs(Engine& engine);

  // Submits the job's requests. Everything that the job borrows must outlive the job.
  Id start(ApiJob made) { return jobs_.start(std::move(made)); }
  // Cancels the job. After that, wait() returns no updates of the job.
  void cancel(Id id) { jobs_.cancel(id); }
  // Waits until a job has an update or wake() was called. The result may be empty.
  std::vector<Update> wait();
  void wake();

 private:
  EngineJobs jobs_;
  // The members below are guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<EngineThread::Event> inbox_;
  bool woken_ = false;

  EngineThread engine_;  // last, so that its thread ends before the members that it writes to are destroyed
};

}  // namespace tessera::cli
