#include "tessera/engine/drafts/draft_trials.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::int64_t kManyInVain = 4;
constexpr DraftTrials::Clock::duration kLongestWait = std::chrono::seconds(32);

}  // namespace

bool DraftTrials::begin(Clock::time_point now) {
  if (in_vain_ >= kManyInVain && (drafting_ > 0 || now < next_trial_)) return false;
  ++drafting_;
  return true;
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

}  // namespace tessera
