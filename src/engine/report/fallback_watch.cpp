#include "tessera/engine/report/fallback_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera {
namespace {

// Returns what the user can do about a fallback. Precondition: is_fallback(reason).
std::string_view remedy(Reason reason) {
  switch (reason) {
    case Reason::kAboveLargestSize:
      return "raise piecewise_cuda_graph_max_tokens or cuda_graph_max_bs, or lower chunked_prefill_size";
    case Reason::kPaddingDisabled: return "add sizes by cuda_graph_bs, or leave disable_cuda_graph_padding out";
    case Reason::kNothingCaptured: return "the log of the start says why; lower mem_fraction_static";
    case Reason::kRowsNotOneEach: return "it is for requests that want no logits of their last token";
    case Reason::kReplayFailed: return "the log says why; enable_torch_compile_debug_mode finds out more";
    default: return {};
  }
}

// Returns what the user can do about a fallback of the vision tower.
std::string_view remedy(VisionReason reason) {
  switch (reason) {
    case VisionReason::kNothingCaptured: return "raise cuda_graph_memory_budget, or lower mem_fraction_static";
    case VisionReason::kDropped: return "the log says why";
    default: return "the images are packed into more patches than its largest budget";
  }
}

bool too_many(std::int64_t part, std::int64_t whole) {
  return part >= FallbackWatch::kFewest &&
         static_cast<double>(part) > FallbackWatch::kLargestShare * static_cast<double>(whole);
}

}  // namespace

std::optional<std::string> FallbackWatch::add(const Decision& decision, std::int64_t shape_compiles,
                                              Clock::time_point now) {
  std::optional<std::string> warning;
  if (window_.forwards == 0) window_.began = now;
  if (now - window_.began >= kWindow) {
    warning = judge();
    window_ = {.began = now};
  }
  ++window_.forwards;
  if (std::exchange(shape_compiles_, shape_compiles) != shape_compiles) ++window_.misses;
  if (decision.runner == RunnerKind::kEager && is_fallback(decision.reason))
    ++window_.fallbacks[static_cast<std::size_t>(decision.reason)];
  return warning;
}

void FallbackWatch::add_tower(VisionReason reason) {
  ++window_.tower_forwards;
  if (is_fallback(reason)) ++window_.tower_fallbacks[static_cast<std::size_t>(reason)];
}

std::optional<std::string> FallbackWatch::judge() const {
  std::string warning;
  const std::int64_t fallbacks = std::accumulate(window_.fallbacks.begin(), window_.fallbacks.end(), std::int64_t{0});
  if (too_many(fallbacks, window_.forwards)) {
    warning =
        fmt::format("{} of {} forwards within {} s ran without a graph", fallbacks, window_.forwards, kWindow.count());
    for (int r = 0; r < kNumReasons; ++r) {
      const auto reason = static_cast<Reason>(r);
      if (const std::int64_t count = window_.fallbacks[static_cast<std::size_t>(r)]; count > 0)
        warning += fmt::format("; {}: {} ({})", reason_text(reason), count, remedy(reason));
    }
  }
  const std::int64_t of_tower =
      std::accumulate(window_.tower_fallbacks.begin(), window_.tower_fallbacks.end(), std::int64_t{0});
  if (too_many(of_tower, window_.tower_forwards)) {
    if (!warning.empty()) warning += "; ";
    warning += fmt::format("{} of {} forwards of the vision tower within {} s ran without a graph", of_tower,
                           window_.tower_forwards, kWindow.count());
    for (int r = 0; r < kNumVisionReasons; ++r) {
      const auto reason = static_cast<VisionReason>(r);
      if (const std::int64_t count = window_.tower_fallbacks[static_cast<std::size_t>(r)]; count > 0)
        warning += fmt::format("; {}: {} ({})", vision_reason_text(reason), count, remedy(reason));
    }
  }
  if (too_many(window_.misses, window_.forwards)) {
    if (!warning.empty()) warning += "; ";
    warning += fmt::format(
        "{} of {} forwards within {} s had a size that kernels had to be chosen for first (capture the sizes that "
        "are in use: piecewise_cuda_graph_tokens, cuda_graph_bs; explain with suggest_tokens proposes some)",
        window_.misses, window_.forwards, kWindow.count());
  }
  if (warning.empty()) return std::nullopt;
  return warning;
}

}  // namespace tessera
