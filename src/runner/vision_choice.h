// Which budget a forward of a vision tower takes, and whether through a graph. A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/runner/costs.h"

namespace tessera {

// Why a forward ran as it did.
enum class VisionReason : std::uint8_t {
  kReplayed,     // a graph of at least its size
  kFirstUse,     // captured now, as VisionOptions::exact_graphs asks, and replayed
  kTooLarge,     // more patches than the largest captured size
  kNotCaptured,  // its size has no graph yet, or lost it
  kEagerFaster,  // than its size's graph, as measured
  kForced,       // encode() was asked to
};
// "replayed" "first use" "too large" "not captured" "eager faster" "forced"
std::string_view vision_reason_name(VisionReason reason);

// What the choice depends on. Borrows.
struct VisionBudgets {
  std::span<const std::int64_t> sizes;     // that are captured sooner or later, ascending
  std::span<const std::int64_t> captured;  // of them, ascending
  const CostTable& costs;                  // kPrefill: replays of a size; kEager: its operators one by one
  std::int64_t step = 1;                   // sizes past the last budget are multiples of this
};

struct VisionChoice {
  std::int64_t size = 0;  // patches, padding included
  bool graph = false;
  VisionReason reason = VisionReason::kNotCaptured;
  friend bool operator==(const VisionChoice&, const VisionChoice&) = default;
};

// A forward takes its budget's graph, unless operators were measured to be faster by more than measurements differ by.
// Where that budget has no graph it takes the next larger one's where that was measured to be no slower than operators,
// and operators otherwise: what was not measured counts for nothing.
VisionChoice choose_budget(const VisionBudgets& budgets, std::int64_t patches);

}  // namespace tessera
