// Decides which new requests get drafts. While drafts pay, all new requests get them. After several requests in a row
// whose drafts did not pay, only one request at a time tries again, and only after a pause. This limits the cost of
// trials: while any request has drafts, no request's steps can be scheduled ahead.
//
// Only the engine's thread uses this class.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace tessera {

class DraftTrials {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns whether a request that arrives at `now` should make drafts. If so, end() must follow.
  bool begin(Clock::time_point now);
  // Records that a request stops drafting, because it has ended or its drafts did not pay. `paid` says whether its
  // drafts were worth the steps in which they were checked. It is empty if there were too few steps to tell.
  void end(std::optional<bool> paid, Clock::time_point now);

 private:
  static constexpr Clock::duration kShortestPause = std::chrono::seconds(1);

  std::int64_t drafting_ = 0;  // requests that draft now
  std::int64_t in_vain_ = 0;   // number of consecutive requests whose drafts did not pay
  Clock::duration pause_ = kShortestPause;
  Clock::time_point next_trial_{};
};

}  // namespace tessera
