// Passes tasks from any thread to the I/O thread, which runs them in the order of their posts. Private to http*.cpp.
//
// All pending tasks share one asio handler, whose memory is part of the queue. A post allocates nothing unless the task
// itself does.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera {

class TaskQueue {
 public:
  // The queue calls `run` with each task. The queue must outlive the io_context.
  explicit TaskQueue(void (*run)(const std::function<void()>& task)) : run_(run) {}

  void post(boost::asio::io_context& io, std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      pending_.push_back(std::move(task));
      if (std::exchange(scheduled_, true)) return;
    }
    boost::asio::post(io, Handler{this});
  }

 private:
  // Gives asio a block of the queue's own memory for the handler. At most one handler needs the block at a time,
  // because asio returns a handler's memory before it calls the handler, and the next handler is posted only after
  // that.
  template <class T>
  struct Allocator {
    using value_type = T;
    explicit Allocator(TaskQueue* its_queue) : queue(its_queue) {}
    template <class U>
    Allocator(const Allocator<U>& other) : queue(other.queue) {}  // NOLINT(google-explicit-constructor)
    T* allocate(std::size_t n) {
      if (n * sizeof(T) > kHandlerBytes) return std::allocator<T>().allocate(n);
      return reinterpret_cast<T*>(queue->memory_);
    }
    void deallocate(T* memory, std::size_t n) {
      if (n * sizeof(T) > kHandlerBytes) std::allocator<T>().deallocate(memory, n);
    }
    template <class U>
    bool operator==(const Allocator<U>& other) const {
      return queue == other.queue;
    }
    TaskQueue* queue;
  };

  struct Handler {
    using allocator_type = Allocator<std::byte>;
    allocator_type get_allocator() const { return allocator_type(queue); }
    void operator()() const { queue->run_pending(); }
    TaskQueue* queue;
  };

  void run_pending() {
    running_.clear();
    {
      const std::lock_guard lock(mutex_);
      std::swap(pending_, running_);
      scheduled_ = false;
    }
    for (const std::function<void()>& task : running_) run_(task);
    running_.clear();
  }

  static constexpr std::size_t kHandlerBytes = 256;
  void (*run_)(const std::function<void()>& task);
  std::mutex mutex_;
  std::vector<std::function<void()>> pending_;  // guarded by mutex_
  bool scheduled_ = false;  // guarded by mutex_; true if a posted handler will take the pending tasks
  std::vector<std::function<void()>> running_;  // used by the I/O thread alone
  alignas(std::max_align_t) std::byte memory_[kHandlerBytes];
};

}  // namespace tessera
