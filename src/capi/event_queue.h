// The events of one request between the engine and whoever asked: kept until they are taken, or handed to a callback.
//
// Threads: push() on one thread at a time, in the order of the events; all else from any.
#pragma once

#include <tessera.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tessera::capi {

// Whether this thread is inside a callback: what waits for an engine is refused there.
bool in_callback();

class EventQueue {
 public:
  struct Item {
    tessera_event_kind kind = TESSERA_EVENT_CHUNK;
    tessera_code code = TESSERA_OK;
    std::string json{};
    std::string message{};  // of an error
  };

  // `on_event`: null keeps events for take().
  EventQueue(tessera_on_event on_event, void* user) : on_event_(on_event), user_(user) {}

  // Adds an event. False where the callback asks for the request to be cancelled. After an end nothing more is taken.
  bool push(Item item);

  bool has_callback() const { return on_event_ != nullptr; }
  // Takes the next event. timeout_ms < 0 waits without end.
  enum class Take : std::uint8_t { kTaken, kTimeout, kNoneLeft };
  Take take(std::int64_t timeout_ms, Item& item);
  // Waits until the end was pushed and its callback has returned. False at the time-out.
  bool wait(std::int64_t timeout_ms);
  bool ended();
  // Stops the callbacks. None runs any more after this has returned, except where it is called within one.
  void detach();

 private:
  // Waits for `ready` under the lock.
  template <class Ready>
  bool wait_for(std::unique_lock<std::mutex>& lock, std::int64_t timeout_ms, const Ready& ready);
  bool call(const Item& item);

  tessera_on_event on_event_;
  void* user_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool ended_ = false;     // its last event was pushed
  bool taken_ = false;     // and taken
  bool calling_ = false;   // a callback runs
  bool detached_ = false;  // nobody listens any more
};

}  // namespace tessera::capi
