#include "tessera/engine/plan/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/engine/plan/plan_steps.h"

namespace tessera {
namespace {

constexpr PlanStep kPlanSteps[] = {
    check_values, read_config,    choose_limits, choose_drafts,  choose_rows,     choose_running, choose_compilers,
    choose_types, reserve_images, build_graphs,  rewrite_graphs, add_wanted_rows, add_adapters,   choose_graphs,
    choose_cuts,  choose_ladders, note_halves,   choose_tower,   divide_memory,
};

Result<EnginePlan> plan_once(const EngineOptions& options, Device& device, int rank) {
  PlanDraft draft{.options = options, .device = device, .rank = rank};
  for (const PlanStep step : kPlanSteps) TRY(step(draft));
  return std::move(draft.plan);
}

// Returns the number of requests for which the state slots suffice. Returns nothing if the model keeps no states.
std::optional<std::int64_t> requests_with_states(const EnginePlan& plan) {
  std::optional<std::int64_t> fewest;
  for (const CacheGroupOptions& group : plan.memory.cache_groups)
    if (group.is_state()) fewest = std::min(fewest.value_or(INT64_MAX), group.num_pages - 1);
  return fewest;
}

}  // namespace

Result<EnginePlan> plan_engine(const EngineOptions& options, Device& device, int rank) {
  EnginePlan plan = TRY(plan_once(options, device, rank));
  const std::optional<std::int64_t> fit = requests_with_states(plan);
  const std::int64_t usual = plan.max_running;
  if (options.max_running_requests > 0 || !fit || *fit >= usual) return plan;  // a requested number is kept
  EngineOptions fewer = options;
  fewer.max_running_requests = *fit;
  plan = TRY(plan_once(fewer, device, rank));
  plan.notes.push_back(
      fmt::format("{} requests run at once, as many as have room for their states, not {}", *fit, usual));
  return plan;
}

}  // namespace tessera
