#include "tessera/capi/event_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tessera::capi {
namespace {

thread_local int callbacks = 0;  // number of callbacks that run on this thread now

}  // namespace

bool in_callback() { return callbacks > 0; }

bool EventQueue::push(Item item) {
  const bool last = item.kind != TESSERA_EVENT_CHUNK;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return true;
    if (detached_ || on_event_ == nullptr) {
      if (!detached_) items_.push_back(std::move(item));
      ended_ = last;
      changed_.notify_all();
      return true;
    }
    calling_ = true;
  }
  const bool goes_on = call(item);
  const std::lock_guard lock(mutex_);
  calling_ = false;
  ended_ = last;
  changed_.notify_all();
  return goes_on;
}

bool EventQueue::call(const Item& item) {
  const tessera_event event{.size = sizeof(tessera_event),
                            .kind = item.kind,
                            .code = item.code,
                            .json = item.json.c_str(),
                            .json_size = item.json.size()};
  ++callbacks;
  const int stop = on_event_(user_, &event);
  --callbacks;
  return stop == 0;
}

template <class Ready>
bool EventQueue::wait_for(std::unique_lock<std::mutex>& lock, std::int64_t timeout_ms, const Ready& ready) {
  if (timeout_ms >= 0)
    return changed_.wait_for(lock, std::chrono::milliseconds(std::min(timeout_ms, kLongestWaitMs)), ready);
  changed_.wait(lock, ready);
  return true;
}

EventQueue::Take EventQueue::take(std::int64_t timeout_ms, Item& item) {
  std::unique_lock lock(mutex_);
  if (taken_) return Take::kNoneLeft;
  if (!wait_for(lock, timeout_ms, [&] { return !items_.empty() || taken_; })) return Take::kTimeout;
  if (taken_) return Take::kNoneLeft;
  item = std::move(items_.front());
  items_.pop_front();
  taken_ = item.kind != TESSERA_EVENT_CHUNK;
  if (taken_) changed_.notify_all();
  return Take::kTaken;
}

bool EventQueue::wait(std::int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  return wait_for(lock, timeout_ms, [&] { return ended_; });
}

bool EventQueue::ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void EventQueue::detach() {
  std::unique_lock lock(mutex_);
  detached_ = true;
  items_.clear();
  if (!in_callback()) changed_.wait(lock, [&] { return !calling_; });
}

}  // namespace tessera::capi
