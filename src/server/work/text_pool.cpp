#include "tessera/server/work/text_pool.h"

#include <fmt/format.h>
#include <prometheus/histogram.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/base/log.h"

namespace tessera {
namespace {

using PoolClock = std::chrono::steady_clock;

const prometheus::Histogram::BucketBoundaries kWaitBuckets = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};

// Sets the nice value of the calling thread. On Linux each thread has its own nice value.
void take_nice(const TextPoolOptions& options) {
  if (options.nice == 0 || ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), options.nice) == 0) return;
  log_warn("server", "the priority of a thread for {} could not be lowered: {}", options.name, std::strerror(errno));
}

}  // namespace

struct TextPool::Impl {
  explicit Impl(TextPoolOptions given) : options(std::move(given)), queue(options.limits) {}

  struct Waiting {
    Job job;
    PoolClock::time_point since;
  };

  void run() {
    take_nice(options);
    std::unique_lock lock(mutex);
    for (;;) {
      std::optional<Id> next;
      wake.wait(lock, [&] { return stopping || (next = queue.next()).has_value(); });
      if (stopping) return;
      Waiting taken = std::move(jobs.extract(*next).mapped());
      lock.unlock();
      waits.Observe(std::chrono::duration<double>(PoolClock::now() - taken.since).count());
      taken.job.run();
      taken = {};  // frees the job's captures without the lock
      lock.lock();
      queue.done(*next);
      wake.notify_one();  // FairQueue may now let another thread take a job that it held back
    }
  }

  TextPoolOptions options;
  prometheus::Histogram waits{kWaitBuckets};
  mutable std::mutex mutex;
  std::condition_variable wake;
  // Guarded by the mutex:
  FairQueue queue;
  std::unordered_map<Id, Waiting> jobs;  // the waiting jobs
  Id next_id = 0;
  std::size_t refused = 0;
  bool stopping = false;

  std::vector<std::thread> threads;
};

TextPool::TextPool(TextPoolOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  for (std::size_t i = 0; i < impl_->options.limits.threads; ++i)
    impl_->threads.emplace_back([impl = impl_.get()] { impl->run(); });
}

TextPool::~TextPool() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

TextPool::Id TextPool::post(Job job) {
  Impl::Waiting refused;  // its not_run is called, and the job freed, without the lock
  Id id = 0;
  {
    const std::lock_guard lock(impl_->mutex);
    id = impl_->next_id++;
    const std::string client = job.client;
    impl_->jobs.emplace(id, Impl::Waiting{std::move(job), PoolClock::now()});
    if (const std::optional<Id> without_room = impl_->queue.add(id, client)) {
      ++impl_->refused;
      refused = std::move(impl_->jobs.extract(*without_room).mapped());
    }
  }
  impl_->wake.notify_one();
  if (refused.job.not_run) refused.job.not_run(NotRun::kFull);
  return id;
}

void TextPool::cancel(Id id) {
  Impl::Waiting cancelled;
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->queue.remove(id)) return;
    cancelled = std::move(impl_->jobs.extract(id).mapped());
  }
  cancelled.job.not_run(NotRun::kCancelled);
}

const std::string& TextPool::name() const { return impl_->options.name; }

TextPool::Stats TextPool::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return {.waiting = impl_->queue.waiting(), .running = impl_->queue.running(), .refused = impl_->refused};
}

const prometheus::Histogram& TextPool::waits() const { return impl_->waits; }

}  // namespace tessera
