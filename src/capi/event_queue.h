// Carries the events of one request from the engine to the caller. The queue either passes the events to a callback, or
// keeps them until the caller gets them with take().
//
// Threads: one thread at a time calls push(), in the order of the events. Any thread may call the other functions.
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

// The longest timeout in milliseconds: a year. A timeout near the greatest 64-bit number would overflow the clock.
inline constexpr std::int64_t kLongestWaitMs = std::int64_t{1000} * 60 * 60 * 24 * 365;

// Returns whether this thread is inside a callback, where functions that wait for an engine are refused.
bool in_callback();

class EventQueue {
 public:
  struct Item {
    tessera_event_kind kind = TESSERA_EVENT_CHUNK;
    tessera_code code = TESSERA_OK;
    std::string json{};
    std::string message{};  // the message of an error
  };

  // The queue passes each event to the callback `on_event`, together with `user`. If `on_event` is null, the queue
  // keeps the events for take().
  EventQueue(tessera_on_event on_event, void* user) : on_event_(on_event), user_(user) {}

  // Adds an event, unless the request's last event has already been added. Returns false if the callback asks to cancel
  // the request.
  bool push(Item item);

  bool has_callback() const { return on_event_ != nullptr; }
  enum class Take : std::uint8_t { kTaken, kTimeout, kNoneLeft };
  // Moves the next event to `item`. Waits at most `timeout_ms` for an event, or without a limit if `timeout_ms` is
  // negative.
  Take take(std::int64_t timeout_ms, Item& item);
  // Waits until the request's last event has been added and the callback for this event has returned. Waits at most
  // `timeout_ms` milliseconds, or without a limit if `timeout_ms` is negative. Returns false on a timeout.
  bool wait(std::int64_t timeout_ms);
  bool ended();
  // Stops the callbacks. When this function returns, no callback runs, unless a callback itself called this function.
  void detach();

 private:
  // Waits until `ready` returns true. `timeout_ms` has the same meaning as in wait(). Returns false on a timeout.
  // `ready` is called under the lock.
  template <class Ready>
  bool wait_for(std::unique_lock<std::mutex>& lock, std::int64_t timeout_ms, const Ready& ready);
  bool call(const Item& item);

  tessera_on_event on_event_;
  void* user_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool ended_ = false;     // the last event was added
  bool taken_ = false;     // the last event was taken
  bool calling_ = false;   // a callback runs
  bool detached_ = false;  // callbacks are stopped
};

}  // namespace tessera::capi
