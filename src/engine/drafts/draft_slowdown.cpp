#include "tessera/engine/drafts/draft_slowdown.h"

#include <algorithm>
#include <bit>

namespace tessera {
namespace {

// How far one step moves the factor towards its own ratio, and how far a step without drafts moves it towards 1.
constexpr double kStepWeight = 1.0 / 8;
constexpr double kRestWeight = 1.0 / 256;
// Ratios outside of this range come from events that have nothing to do with drafts, for example a stalled host.
constexpr double kLeastRatio = 0.5;
constexpr double kGreatestRatio = 4;

}  // namespace

std::size_t DraftSlowdown::place(std::int64_t requests) {
  const auto width =
      static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(requests, 1))));
  return std::min(width - 1, std::tuple_size_v<decltype(factors_)> - 1);
}

void DraftSlowdown::add(std::int64_t requests, double predicted_ms, double ms) {
  double& factor = factors_[place(requests)];
  factor += kStepWeight * (std::clamp(ms / predicted_ms, kLeastRatio, kGreatestRatio) - factor);
}

void DraftSlowdown::rest(std::int64_t requests) {
  double& factor = factors_[place(requests)];
  factor += kRestWeight * (1 - factor);
}

}  // namespace tessera
