// Which budget a forward of a vision tower takes, and whether through a graph. A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/runner/dispatch/costs.h"

namespace tessera {

// Why a forward ran as it did.
enum class VisionReason : std::uint8_t {
  kReplayed,         // a graph of at least its size
  kFirstUse,         // captured now, as VisionOptions::exact_graphs asks, and replayed
  kGraphsDisabled,   // eager: graphs are switched off
  kTooLarge,         // eager: more patches than the largest budget
  kNothingCaptured,  // eager: every budget was left out of the memory for graphs
  kNotCaptured,      // eager: its budget has no graph yet
  kDropped,          // eager: its budget's capture failed
  kEagerFaster,      // eager: measured to be faster than its budget's graph
  kForced,           // eager: encode() was asked to
};
inline constexpr int kNumVisionReasons = 9;
std::string_view vision_reason_name(VisionReason reason);  // "above_largest_size", for counters
std::string_view vision_reason_text(VisionReason reason);  // "more patches than the largest budget"
// Whether a graph was replayed.
bool is_replay(VisionReason reason);
// Whether the forward ran eagerly although graphs were on, and idle moments will not mend that: worth a warning.
bool is_fallback(VisionReason reason);

// What the choice depends on. Borrows.
struct VisionBudgets {
  std::span<const std::int64_t> sizes;     // that are captured sooner or later, ascending
  std::span<const std::int64_t> captured;  // of them, ascending
  const CostTable& costs;                  // kPrefill: replays of a size; kEager: its operators one by one
  std::int64_t step = 1;                   // eager sizes are multiples of this, or a budget
  bool enabled = true;                     // false: graphs are switched off
};

struct VisionChoice {
  std::int64_t size = 0;  // patches, padding included
  bool graph = false;
  VisionReason reason = VisionReason::kNotCaptured;
  friend bool operator==(const VisionChoice&, const VisionChoice&) = default;
};

// A forward takes its budget's graph, unless operators, which are padded less, were measured to be faster by more than
// measurements differ by. Where that budget has no graph it takes the next larger one's where that was measured to be
// no slower than operators, and operators otherwise: what was not measured counts for nothing.
VisionChoice choose_budget(const VisionBudgets& budgets, std::int64_t patches);

}  // namespace tessera
