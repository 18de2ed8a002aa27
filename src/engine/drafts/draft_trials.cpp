#include "tessera/engine/drafts/draft_trials.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::int64_t kManyInVain = 4;
constexpr DraftTrials::Clock::duration kLongestWait = std::chrono::seconds(32);
constexpr DraftTrials::Clock::duration kLongestStop = std::chrono::seconds(128);
// Each step of a request multiplies the weight of all earlier steps, of all requests, by this factor.
constexpr double kFadingOfAll = 1 - 1.0 / 256;

}  // namespace

bool DraftTrials::begin(Clock::time_point now, const Load& load) {
  if (is_stopped(now, load)) return false;
  if (in_vain_ >= kManyInVain) {
    if (drafting_ > 0 || now < next_trial_) return false;
    forget_drafts();  // a low acceptance of earlier requests would keep the trial from drafting
  }
  ++drafting_;
  return true;
}

// Returns whether drafting is stopped. First ends the stop if its time is over, or if fewer than half as many requests
// run as when the stop began, because a draft then costs less. Does not end the stop while requests wait: a waiting
// request that may draft would keep all steps from being scheduled ahead, even before it makes its first draft.
bool DraftTrials::is_stopped(Clock::time_point now, const Load& load) {
  if (stopped_at_ == 0) return false;
  const bool is_lighter = 2 * (load.running + 1) < stopped_at_;
  if (load.waiting > 0 || (now < stop_end_ && !is_lighter)) return true;
  stopped_at_ = 0;
  if (is_lighter) next_stop_ = kShortestStop;
  forget_drafts();
  return false;
}

void DraftTrials::end(std::optional<bool> paid, Clock::time_point now) {
  --drafting_;
  if (!paid) {
    if (in_vain_ >= kManyInVain) next_trial_ = now + pause_;
    return;
  }
  if (*paid) {
    in_vain_ = 0;
    pause_ = kShortestPause;
    return;
  }
  if (++in_vain_ < kManyInVain) return;
  next_trial_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestWait);
}

void DraftTrials::stop(Clock::time_point now, std::int64_t running) {
  stopped_at_ = std::max<std::int64_t>(running, 1);
  stop_end_ = now + next_stop_;
  next_stop_ = std::min(2 * next_stop_, kLongestStop);
}

void DraftTrials::judge(std::int64_t drafted, std::int64_t kept) {
  kept_ = kFadingOfAll * kept_ + static_cast<double>(kept);
  tried_ = kFadingOfAll * tried_ + static_cast<double>(std::min(kept + 1, drafted));
}

void DraftTrials::forget_drafts() {
  kept_ = kAssumedWeight * kAssumed;
  tried_ = kAssumedWeight;
}

}  // namespace tessera
