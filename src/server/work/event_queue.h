// Passes the engine's events from its thread to the I/O thread. It swaps two lists, which keep their memory. Neither
// side allocates unless the backlog exceeds the queue's initial capacity.
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
  // `events`: the capacity of each list at the start. A larger backlog makes the lists grow.
  explicit EventQueue(std::size_t events) {
    pending_.reserve(events);
    taken_.reserve(events);
  }

  // Appends the events to the queue. Called on the engine's thread. Returns true if the queue was empty before. In that
  // case the caller must wake the I/O thread.
  bool push(std::span<EngineThread::Event> events) {
    const std::lock_guard lock(mutex_);
    const bool was_empty = pending_.empty();
    pending_.insert(pending_.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
    return was_empty;
  }

  // Calls `visit` once with all events that were pushed since the previous drain(), in order. Called on the I/O thread.
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
  std::vector<EngineThread::Event> pending_;  // guarded by mutex_
  std::vector<EngineThread::Event> taken_;    // used by the I/O thread alone
};

}  // namespace tessera
