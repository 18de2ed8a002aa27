// Decides which new requests draft. While drafts pay, all do. When request after request drafted in vain, a request
// only tries now and then, because a request that drafts keeps the steps of all requests from being scheduled ahead.
//
// Threads: the engine's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace tessera {

class DraftTrials {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns whether a request that arrives now drafts. If so, end() must follow.
  bool begin(Clock::time_point now);
  // A request stops drafting, because it has ended or because its drafts were in vain. `paid`: whether they were worth
  // the steps that they took part in; nothing if there were too few steps to tell.
  void end(std::optional<bool> paid, Clock::time_point now);

 private:
  static constexpr Clock::duration kShortestPause = std::chrono::seconds(1);

  std::int64_t drafting_ = 0;  // requests
  std::int64_t in_vain_ = 0;   // requests in a row
  Clock::duration pause_ = kShortestPause;
  Clock::time_point next_trial_{};
};

}  // namespace tessera
