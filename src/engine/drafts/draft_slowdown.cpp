#include "tessera/engine/drafts/draft_slowdown.h"

#include <algorithm>
#include <bit>

namespace tessera {
namespace {

// There is one factor for steps with drafts and one for steps without drafts. After each step, the factor for its kind
// of step moves by the share kStepWeight towards the ratio of the step's measured time to its predicted time. After a
// step without drafts, the factor for steps with drafts also moves, by the share kRestWeight, towards the factor for
// steps without drafts.
constexpr double kStepWeight = 1.0 / 8;
constexpr double kRestWeight = 1.0 / 256;
// Ratios outside of this range come from single events, for example a stalled host.
constexpr double kLeastRatio = 0.5;
constexpr double kGreatestRatio = 4;

}  // namespace

std::size_t DraftSlowdown::place(std::int64_t requests) {
  const auto bits = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(requests, 1)));
  return std::min(static_cast<std::size_t>(bits) - 1, std::tuple_size_v<decltype(factors_)> - 1);
}

void DraftSlowdown::begin(std::optional<Step> step, Clock::time_point now) {
  if (step && last_ && last_->predicted_ms > 0) {
    const std::chrono::duration<double, std::milli> taken = now - begin_;
    const double ratio = std::clamp(taken.count() / last_->predicted_ms, kLeastRatio, kGreatestRatio);
    Factors& factors = factors_[place(last_->requests)];
    double& own = last_->has_drafts ? factors.drafted : factors.plain;
    own += kStepWeight * (ratio - own);
    if (!last_->has_drafts) factors.drafted += kRestWeight * (factors.plain - factors.drafted);
  }
  last_ = step;
  begin_ = now;
}

double DraftSlowdown::factor(std::int64_t requests) const {
  const Factors& factors = factors_[place(requests)];
  return factors.drafted / factors.plain;
}

}  // namespace tessera
