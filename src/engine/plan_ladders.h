// The sizes that graphs are captured for.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/piecewise/auto_ladder.h"

namespace tessera {

inline constexpr std::int64_t kDefaultMaxDecode = 256;  // requests of the largest decode graph

// Milliseconds of a prefill graph by its number of tokens, where replays of two sizes or more were measured; else
// prior_token_cost. Monotone: a larger size measured to be faster was disturbed less.
TokenCost prefill_cost(const std::optional<CostTable>& known);

// Fills runner.prefill_sizes and decode_sizes, and notes about sizes that were dropped or are never used. Precondition:
// the runner's switches, max_tokens and max_requests are set.
Status plan_ladders(const EngineOptions& options, EnginePlan& plan);

}  // namespace tessera
