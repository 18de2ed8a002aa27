// Passes the engine's events from its thread to the I/O thread. Two lists are swapped and keep their memory, so that
// neither side allocates until the I/O thread falls behind by more events than the queue was made for.
#pragma once

#include <cstddef>
#include <iterator>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tessera/engine/engine_thread.h"

namespace tessera {

class EventQueue {
 public:
  // `events`: how many each list has room for from the start. A larger backlog makes the lists grow.
  explicit EventQueue(std::size_t events) {
    pending_.reserve(events);
    taken_.reserve(events);
  }

  // On the engine's thread. Takes the events; true where the queue was empty, so that the reader has to be woken.
  bool push(std::span<EngineThread::Event> events) {
    const std::lock_guard lock(mutex_);
    const bool was_empty = pending_.empty();
    pending_.insert(pending_.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
    return was_empty;
  }

  // On the I/O thread. Calls `visit` with all events since the last call, in order.
  template <class Visit>
  void drain(const Visit& visit) {
    taken_.clear();
    {
      const std::lock_guard lock(mutex_);
      std::swap(pending_, taken_);
    }
    visit(std::span<EngineThread::Event>(taken_));
    taken_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<EngineThread::Event> pending_;  // under the mutex
  std::vector<EngineThread::Event> taken_;    // the I/O thread's
};

}  // namespace tessera
