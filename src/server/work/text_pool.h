// A few threads for one kind of work that would block the I/O thread, and the jobs that wait for them. fair_queue.h
// says which job is next.
//
// Threads: all functions from any thread, but the constructor and the destructor.
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
  std::string name;  // in metrics
  FairQueue::Limits limits{};
  int nice = 0;  // of its threads, and of those that they start; 0 to 19, the higher, the less of the CPU they get
};

class TextPool {
 public:
  enum class NotRun : std::uint8_t { kFull, kCancelled };
  struct Job {
    std::string client;
    std::function<void()> run;                // on a thread of the pool; must not throw
    std::function<void(NotRun why)> not_run;  // instead of `run`, on the thread that posts or cancels
  };
  using Id = FairQueue::Job;
  struct Stats {
    std::size_t waiting = 0;
    std::size_t running = 0;
    std::size_t refused = 0;  // since the start
  };

  explicit TextPool(TextPoolOptions options);
  // Ends with the jobs at hand; those that wait are dropped.
  ~TextPool();

  // Either `run` or `not_run` of each job is called, but for those that are dropped at the pool's end. Where the pool
  // is full, `not_run` may be another job's (fair_queue.h).
  Id post(Job job);
  // Takes a job out that has not begun.
  void cancel(Id id);

  const std::string& name() const;
  Stats stats() const;
  // Seconds from the post of a job to its begin.
  const prometheus::Histogram& waits() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
