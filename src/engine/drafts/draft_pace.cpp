#include "tessera/engine/drafts/draft_pace.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::int64_t kLongestPause = 32;
constexpr double kFading = 0.9;  // each step multiplies the weight of earlier steps by this factor
constexpr double kPoor = 0.3;    // a pause follows a step without a kept draft if the estimate is below this
// After a pause, the estimate begins again with the typical probability, which has the weight of this number of drafts.
// The weight is low, so that one refused draft leads to another pause.
constexpr double kWeightOfRetry = 0.5;

}  // namespace

double DraftPace::next(double typical) {
  if (pause_ == 0) return estimate(typical);
  --pause_;
  return 0;
}

void DraftPace::judge(std::int64_t drafted, std::int64_t kept, double typical) {
  kept_ = kFading * kept_ + static_cast<double>(kept);
  tried_ = kFading * tried_ + static_cast<double>(std::min(kept + 1, drafted));
  if (kept > 0) {
    next_pause_ = 1;
  } else if (estimate(typical) < kPoor) {
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
    kept_ = tried_ = 0;
    weight_ = kWeightOfRetry;
  }
}

}  // namespace tessera
