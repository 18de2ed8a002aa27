// Which sizes graphs are captured for (B2, B3, B4, B9).
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/piecewise/auto_ladder.h"

namespace tessera {

inline constexpr std::int64_t kDefaultMaxRequests = 256;

// Milliseconds of a prefill graph of so many tokens, where replays of two sizes or more were measured; else
// prior_token_cost. Never falling: a larger size that was measured to be faster was disturbed less.
TokenCost prefill_cost(const std::optional<CostTable>& known);

// Fills runner.prefill_sizes and decode_sizes, and notes about what was dropped or can never be reached. Precondition:
// the runner's switches, max_tokens and max_requests are there.
Status plan_ladders(const EngineOptions& options, EnginePlan& plan);

}  // namespace tessera
