#include "tessera/engine/plan/plan_ladders.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

// Drops sizes above `max`, and adds a note about them. Returns an error if no size is left.
Result<std::vector<std::int64_t>> capped(std::vector<std::int64_t> sizes, std::int64_t max, std::string_view option,
                                         std::vector<std::string>& notes) {
  const auto end = std::upper_bound(sizes.begin(), sizes.end(), max);
  if (end == sizes.begin()) {
    return invalid_argument(fmt::format("{}: all sizes are above {}, the smallest is {}", option, max, sizes.front()));
  }
  if (end != sizes.end()) {
    notes.push_back(fmt::format("{}: {} sizes above {} are dropped", option, sizes.end() - end, max));
    sizes.erase(end, sizes.end());
  }
  return sizes;
}

void note_mismatch(const std::vector<std::int64_t>& sizes, std::int64_t chunk, std::vector<std::string>& notes) {
  if (sizes.back() < chunk) {
    notes.push_back(fmt::format(
        "the largest prefill graph has {} tokens and a forward may have {}: larger forwards are cut, or eager where "
        "that is expected to cost less",
        sizes.back(), chunk));
  }
  const auto last_used = std::lower_bound(sizes.begin(), sizes.end(), chunk);
  if (last_used == sizes.end() || last_used + 1 == sizes.end()) return;
  notes.push_back(
      fmt::format("a forward has at most {} tokens (chunked_prefill_size): {} prefill sizes above {} are "
                  "captured and never used",
                  chunk, sizes.end() - last_used - 1, *last_used));
}

std::vector<std::int64_t> scheduled_sizes(const EngineOptions& options, std::int64_t max_tokens) {
  if (options.graphs.schedule != PrefillSchedule::kAuto) return prefill_ladder(max_tokens, options.graphs.schedule);
  // If inference is deterministic, ignores measured costs, because the ladder must not depend on measurements.
  return auto_ladder(max_tokens, prefill_cost(options.deterministic ? std::nullopt : options.known_costs));
}

}  // namespace

TokenCost prefill_cost(const std::optional<CostTable>& known) {
  if (!known || known->sizes(RunnerKind::kPrefill).size() < 2) return prior_token_cost;
  return [costs = *known](std::int64_t tokens) { return *costs.ms(RunnerKind::kPrefill, tokens); };
}

std::int64_t asked_decode_rows(const GraphOptions& graphs) {
  return graphs.decode_batches.empty() ? graphs.decode_max_batch : graphs.decode_batches.back();
}

Status plan_ladders(const EngineOptions& options, EnginePlan& plan) {
  const GraphOptions& graphs = options.graphs;
  RunnerOptions& runner = plan.runner;
  const std::int64_t chunk = runner.max_tokens;
  const std::int64_t max_tokens = graphs.piecewise_max_tokens;  // 0: the option is not given
  if (graphs.piecewise_tokens.empty()) {
    runner.prefill_sizes = scheduled_sizes(options, max_tokens > 0 ? max_tokens : chunk);
  } else {
    const std::int64_t largest = graphs.piecewise_tokens.back();
    const std::int64_t most = max_tokens > 0 ? std::min(max_tokens, largest) : largest;
    runner.prefill_sizes = TRY(capped(graphs.piecewise_tokens, most, "piecewise_cuda_graph_tokens", plan.notes));
  }
  if (runner.graphs.prefill) note_mismatch(runner.prefill_sizes, chunk, plan.notes);
  const std::int64_t max_batch =
      std::min(graphs.decode_max_batch > 0 ? graphs.decode_max_batch : kDefaultMaxDecode, runner.max_requests);
  runner.decode_sizes = graphs.decode_batches.empty()
                            ? decode_ladder(max_batch)
                            : TRY(capped(graphs.decode_batches, runner.max_requests, "cuda_graph_bs", plan.notes));
  return ok_status();
}

}  // namespace tessera
