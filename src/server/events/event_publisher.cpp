#include "tessera/server/events/event_publisher.h"

#include <exception>

#include "tessera/base/log.h"
#include "tessera/server/api_job.h"

namespace tessera {
Result<std::unique_ptr<EventPublisher>> EventPublisher::create(const KvEventsOptions& options, int rank,
                                                               std::int64_t page_size) {
  std::unique_ptr<EventSockets> sockets = TRY(EventSockets::open(options, rank));
  return std::unique_ptr<EventPublisher>(new EventPublisher(std::move(sockets), options, rank, page_size));
}

EventPublisher::EventPublisher(std::unique_ptr<EventSockets> sockets, const KvEventsOptions& options, int rank,
                               std::int64_t page_size)
    : sockets_(std::move(sockets)),
      most_kept_(options.replay_endpoint.empty() ? 0 : static_cast<std::size_t>(options.buffer_steps)),
      most_waiting_(static_cast<std::size_t>(options.max_queue_size)),
      rank_(rank),
      page_size_(page_size),
      thread_([this] { work(); }) {}

EventPublisher::~EventPublisher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  sockets_->wake();
  thread_.join();
}

void EventPublisher::add(CacheEvents events) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = next_number_++;
    try {
      if (waiting_.size() < most_waiting_) {
        const double seconds = static_cast<double>(unix_nanoseconds()) * 1e-9;
        waiting_.push_back({.number = number, .batch = {.events = std::move(events), .unix_seconds = seconds}});
      } else {
        ++dropped_;
      }
    } catch (const std::bad_alloc&) {
      ++dropped_;
    }
  }
  sockets_->wake();
}

bool EventPublisher::take(std::vector<Waiting>& waiting) {
  waiting.clear();
  const std::lock_guard lock(mutex_);
  std::swap(waiting, waiting_);
  return !waiting.empty() || !ending_;
}

void EventPublisher::work() {
  std::vector<Waiting> waiting;
  while (take(waiting)) {
    for (const Waiting& one : waiting) publish(one);
    replay();
    if (waiting.empty()) sockets_->wait();
  }
}

void EventPublisher::publish(const Waiting& waiting) {
  try {
    std::string message = event_message(waiting.batch, page_size_, rank_);
    ++(sockets_->publish(waiting.number, message) ? published_ : dropped_);
    if (most_kept_ == 0) return;
    if (kept_.size() >= most_kept_) kept_.pop_front();
    kept_.emplace_back(waiting.number, std::move(message));
  } catch (const std::exception& e) {  // usually std::bad_alloc
    ++dropped_;
    log_warn("server", "batch {} of KV cache events is lost: {}", waiting.number, e.what());
  }
}

void EventPublisher::replay() {
  while (const std::optional<EventSockets::Request> request = sockets_->next_request()) {
    for (const auto& [number, message] : kept_) {
      if (number < request->first) continue;
      sockets_->replay(*request, number, message);
      ++replayed_;
    }
    sockets_->end_replay(*request);
  }
}

}  // namespace tessera
