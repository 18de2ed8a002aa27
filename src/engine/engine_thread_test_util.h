// A helper for tests of engines that run on threads of their own: a sink, which is a function that receives the
// engines' events.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tessera/engine/engine_thread.h"

namespace tessera::test {

// Collects events of one or several engines until the expected requests have ended.
class Gatherer {
 public:
  EngineThread::Sink sink() {
    return [this](std::span<EngineThread::Event> events) {
      const std::lock_guard lock(mutex_);
      for (EngineThread::Event& event : events) {
        if (event.event.token) tokens_[event.ticket].push_back(*event.event.token);
        if (event.event.finish == FinishReason::kNone) continue;
        errors_[event.ticket] = event.event.error;
        if (event.end != nullptr) ends_[event.ticket] = std::move(*event.end);
        ++ended_;
      }
      changed_.notify_all();
    };
  }
  void wait_for(std::size_t ended) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_ >= ended; }));
  }

  void wait_for_ticket(Ticket ticket) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return errors_.contains(ticket); }));
  }

  std::map<Ticket, std::vector<TokenId>> tokens_;
  std::map<Ticket, Status> errors_;
  std::map<Ticket, Completion> ends_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ended_ = 0;
};

}  // namespace tessera::test
