// Chooses how many patches a vision tower's forward is padded to, and whether the forward replays a graph. A budget is
// a number of patches for which a graph is captured. A forward of fewer patches is padded to a budget. The choice is a
// pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/runner/dispatch/costs.h"

namespace tessera {

// Why a forward replayed a graph or ran eagerly.
enum class VisionReason : std::uint8_t {
  kReplayed,         // a graph with room for the forward's patches was replayed
  kFirstUse,         // captured now because VisionOptions::exact_graphs asks for it, and then replayed
  kGraphsDisabled,   // eager: graphs are switched off
  kTooLarge,         // eager: more patches than the largest budget
  kNothingCaptured,  // eager: the graph memory has no room for a graph of any budget
  kNotCaptured,      // eager: its budget has no graph yet
  kDropped,          // eager: its budget's capture failed
  kEagerFaster,      // eager: measured to be faster than its budget's graph
  kForced,           // eager: the caller of encode() requested it
};
inline constexpr int kNumVisionReasons = 9;
std::string_view vision_reason_name(VisionReason reason);  // "above_largest_size", for counters
std::string_view vision_reason_text(VisionReason reason);  // "more patches than the largest budget"
// Returns whether a graph was replayed.
bool is_replay(VisionReason reason);
// Returns whether the reason is a fallback. In a fallback, graphs are switched on, but no graph can run the forward,
// and later captures in idle moments will not change this. The log warns of fallbacks.
bool is_fallback(VisionReason reason);

// The inputs of the choice. The spans and `costs` must stay valid during choose_budget().
struct VisionBudgets {
  std::span<const std::int64_t> sizes;     // budgets that are captured or will be, ascending
  std::span<const std::int64_t> captured;  // budgets that are captured, ascending
  const CostTable& costs;                  // kPrefill: graph replays of a size; kEager: eager runs of a size
  std::int64_t step = 1;                   // eager sizes are multiples of `step`, or equal a budget
  bool enabled = true;                     // whether graphs are switched on
};

struct VisionChoice {
  std::int64_t size = 0;  // patches, padding included
  bool graph = false;
  VisionReason reason = VisionReason::kNotCaptured;
  friend bool operator==(const VisionChoice&, const VisionChoice&) = default;
};

// Chooses how a forward of `patches` patches runs. The forward's budget is the smallest budget that is at least
// `patches`. The forward replays the budget's graph, unless an eager run, which needs less padding, was measured to be
// faster by more than measurement noise. If the budget has no graph, the forward replays the graph of the next larger
// captured budget, provided that this graph was measured to be no slower than an eager run. Otherwise it runs eagerly.
// Sizes without measurements are not compared.
VisionChoice choose_budget(const VisionBudgets& budgets, std::int64_t patches);

}  // namespace tessera
