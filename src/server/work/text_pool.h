// A few threads for one kind of work that would block the I/O thread, and a queue of jobs for them. fair_queue.h
// chooses the next job.
//
// Threads: any thread may call all functions except the constructor and the destructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/server/work/fair_queue.h"

namespace prometheus {
class Histogram;
}

namespace tessera {

struct TextPoolOptions {
  std::string name;  // the pool's name in the metrics
  FairQueue::Limits limits{};
  int nice = 0;  // nice value of the pool's threads and their children, 0 to 19; a higher value means less CPU time
};

class TextPool {
 public:
  enum class NotRun : std::uint8_t { kFull, kCancelled };
  struct Job {
    std::string client;
    std::function<void()> run;                // called on a thread of the pool; must not throw
    std::function<void(NotRun why)> not_run;  // called instead of `run`, on the thread that posts or cancels
  };
  using Id = FairQueue::Job;
  struct Stats {
    std::size_t waiting = 0;
    std::size_t running = 0;
    std::size_t refused = 0;  // number of refused jobs since the start
  };

  explicit TextPool(TextPoolOptions options);
  // Finishes the running jobs and drops the waiting ones.
  ~TextPool();

  // Adds a job. Calls either its `run` or its `not_run`, unless the pool is destroyed while the job waits. If the pool
  // is full, it may drop a waiting job of another client to make room (fair_queue.h). It then calls the `not_run` of
  // the dropped job.
  Id post(Job job);
  // Removes a job that has not begun.
  void cancel(Id id);

  const std::string& name() const;
  Stats stats() const;
  // Returns the histogram of how long jobs waited before they ran, in seconds.
  const prometheus::Histogram& waits() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
