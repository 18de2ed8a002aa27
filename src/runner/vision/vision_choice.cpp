#include "tessera/runner/vision/vision_choice.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

// Two measurements of the same work differ by less than this factor.
constexpr double kMargin = 1.02;

struct ReasonWords {
  std::string_view name;
  std::string_view text;
};
// This array is indexed by VisionReason. A reason that the language model's dispatch has too has the same name there
// (reason_name()).
constexpr std::array<ReasonWords, kNumVisionReasons> kReasons = {{
    {"replayed", "replayed its budget's graph"},
    {"first_use", "captured on its first use, and replayed"},
    {"graphs_disabled", "graphs are switched off"},
    {"above_largest_size", "more patches than the largest budget"},
    {"nothing_captured", "no budget fits the memory for graphs"},
    {"not_captured_yet", "its budget is not captured yet"},
    {"capture_failed", "the capture of this budget failed"},
    {"eager_costs_less", "measured to be faster than the graph of its budget"},
    {"eager_requested", "the caller asked for an eager forward"},
}};

}  // namespace

std::string_view vision_reason_name(VisionReason reason) { return kReasons[static_cast<std::size_t>(reason)].name; }
std::string_view vision_reason_text(VisionReason reason) { return kReasons[static_cast<std::size_t>(reason)].text; }

bool is_replay(VisionReason reason) { return reason == VisionReason::kReplayed || reason == VisionReason::kFirstUse; }

bool is_fallback(VisionReason reason) {
  using enum VisionReason;
  return reason == kTooLarge || reason == kNothingCaptured || reason == kDropped;
}

VisionChoice choose_budget(const VisionBudgets& budgets, std::int64_t patches) {
  const std::int64_t stepped = (patches + budgets.step - 1) / budgets.step * budgets.step;
  if (!budgets.enabled) return {.size = stepped, .reason = VisionReason::kGraphsDisabled};
  if (budgets.sizes.empty()) return {.size = stepped, .reason = VisionReason::kNothingCaptured};
  const std::optional<std::int64_t> own = round_up(budgets.sizes, patches);
  if (!own) return {.size = stepped, .reason = VisionReason::kTooLarge};
  const VisionChoice eager{.size = std::min(stepped, *own), .reason = VisionReason::kNotCaptured};
  const std::optional<std::int64_t> captured = round_up(budgets.captured, patches);
  if (!captured) return eager;
  const std::optional<double> replay_ms = budgets.costs.ms(RunnerKind::kPrefill, *captured);
  const std::optional<double> eager_ms = budgets.costs.ms(RunnerKind::kEager, eager.size);
  const VisionChoice graph{.size = *captured, .graph = true, .reason = VisionReason::kReplayed};
  if (*captured != *own) return replay_ms && eager_ms && *replay_ms <= *eager_ms ? graph : eager;
  if (replay_ms && eager_ms && *eager_ms * kMargin < *replay_ms)
    return {.size = eager.size, .reason = VisionReason::kEagerFaster};
  return graph;
}

}  // namespace tessera
