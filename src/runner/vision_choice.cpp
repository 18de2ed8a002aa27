#include "tessera/runner/vision_choice.h"

#include <optional>

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

// Two measurements of the same work differ by less.
constexpr double kMargin = 1.02;

}  // namespace

std::string_view vision_reason_name(VisionReason reason) {
  switch (reason) {
    case VisionReason::kReplayed: return "replayed";
    case VisionReason::kFirstUse: return "first use";
    case VisionReason::kTooLarge: return "too large";
    case VisionReason::kNotCaptured: return "not captured";
    case VisionReason::kEagerFaster: return "eager faster";
    case VisionReason::kForced: return "forced";
  }
  return "unknown";
}

VisionChoice choose_budget(const VisionBudgets& budgets, std::int64_t patches) {
  const std::optional<std::int64_t> own = round_up(budgets.sizes, patches);
  if (!own) {
    const std::int64_t size = (patches + budgets.step - 1) / budgets.step * budgets.step;
    return {.size = size, .reason = VisionReason::kTooLarge};
  }
  const VisionChoice eager{.size = *own, .reason = VisionReason::kNotCaptured};
  const std::optional<std::int64_t> captured = round_up(budgets.captured, patches);
  if (!captured) return eager;
  const std::optional<double> replay_ms = budgets.costs.ms(RunnerKind::kPrefill, *captured);
  const std::optional<double> eager_ms = budgets.costs.ms(RunnerKind::kEager, *own);
  const VisionChoice graph{.size = *captured, .graph = true, .reason = VisionReason::kReplayed};
  if (*captured != *own) return replay_ms && eager_ms && *replay_ms <= *eager_ms ? graph : eager;
  if (replay_ms && eager_ms && *eager_ms * kMargin < *replay_ms)
    return {.size = *own, .reason = VisionReason::kEagerFaster};
  return graph;
}

}  // namespace tessera
