// Plans the sizes for which graphs are captured.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/piecewise/auto_ladder.h"

namespace tessera {

inline constexpr std::int64_t kDefaultMaxDecode = 256;  // number of rows of the largest decode graph

// Returns the number of rows of the largest decode graph that the options ask for; 0 if they leave it to the plan.
std::int64_t asked_decode_rows(const GraphOptions& graphs);

// Returns a function that maps a prefill graph's number of tokens to the graph's cost in milliseconds. The function is
// made from measurements if replays of at least two sizes were measured. Otherwise it is prior_token_cost. The cost
// never falls with the size. If a smaller size was measured to be slower than a larger one, its measurement was
// disturbed, so the smaller size gets the larger size's cost.
TokenCost prefill_cost(const std::optional<CostTable>& known);

// Fills runner.prefill_sizes and decode_sizes, and adds notes about sizes that were dropped or are never used.
// Precondition: the runner's switches, max_tokens and max_requests are set.
Status plan_ladders(const EngineOptions& options, EnginePlan& plan);

}  // namespace tessera
