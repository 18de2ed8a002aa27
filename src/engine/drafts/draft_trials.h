// Decides which new requests get drafts, and learns from all requests how often the drafts of the model's next-token
// layer or draft model are kept.
//
// While drafts pay, all new requests get them. Two rules make exceptions:
//   - Several requests in a row kept too few drafts (end()). Then only one request at a time tries again, and only
//     after a pause.
//   - Drafting costs all requests together more time than it saves (stop()). Then no new request drafts for a while.
//     After that all new requests draft again, because the drafts of one among many requests cannot show whether
//     drafting pays.
// Both rules limit the cost of trials: while any request has drafts, no request's steps can be scheduled ahead.
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
  // The assumed probability that a draft of a layer is kept, until drafts have been judged.
  static constexpr double kAssumed = 0.75;

  // The other requests at the time when a new request arrives.
  struct Load {
    std::int64_t running = 0;
    std::int64_t waiting = 0;
  };

  // Returns whether a request that arrives at `now` should make drafts. If true, end() must be called later.
  bool begin(Clock::time_point now, const Load& load);
  // Records that a request stops drafting, because it has ended or its drafts did not pay. `paid` says whether its
  // drafts were worth the steps in which they were checked. It is empty if there were too few steps to tell.
  void end(std::optional<bool> paid, Clock::time_point now);
  // Records that all requests stop drafting, because drafts cost more time than they saved while `running` requests
  // ran.
  void stop(Clock::time_point now, std::int64_t running);

  // Records how many of a request's drafts in one step were kept.
  void judge(std::int64_t drafted, std::int64_t kept);
  // Returns the probability that a draft is kept if all drafts of its request before it are kept.
  double acceptance() const { return kept_ / tried_; }

 private:
  static constexpr Clock::duration kShortestPause = std::chrono::seconds(1);
  static constexpr Clock::duration kShortestStop = std::chrono::seconds(4);
  static constexpr double kAssumedWeight = 2;  // the weight of kAssumed, as a number of drafts

  bool is_stopped(Clock::time_point now, const Load& load);
  void forget_drafts();

  std::int64_t drafting_ = 0;  // requests that draft now
  std::int64_t in_vain_ = 0;   // number of consecutive requests whose drafts did not pay
  Clock::duration pause_ = kShortestPause;
  Clock::time_point next_trial_{};
  std::int64_t stopped_at_ = 0;                // requests that ran when drafting was stopped; 0: it is not stopped
  Clock::duration next_stop_ = kShortestStop;  // how long the next stop lasts
  Clock::time_point stop_end_{};
  double kept_ = kAssumedWeight * kAssumed;  // number of kept drafts; older drafts count less
  double tried_ = kAssumedWeight;  // kept drafts and the first refused draft of each step; older drafts count less
};

}  // namespace tessera
