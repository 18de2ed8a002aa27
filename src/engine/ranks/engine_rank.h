// Starts the other ranks of an engine. Each rank has its own thread, on which it plans, opens a device, loads its slice
// of the weights and makes a runner (runner/ranks/rank_group.h).
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/runner/followers/rank_host.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {

// Starts the ranks' threads, waits for the other nodes, and cuts the plan to what fits all ranks. Precondition: there
// are several ranks. `device` and `plan` are rank 0's. Puts the group into plan.runner, so that the runner made from
// the plan works with it. RankGroup::load with limits_of(plan) loads the weights of all ranks.
Result<std::unique_ptr<RankGroup>> start_ranks(const EngineOptions& options, Device& device, EnginePlan& plan);

// Plans with plan_engine_with_profile(). Cuts the plan as start_ranks() would if all stages had a device like this one.
// Starts nothing.
Result<EnginePlan> plan_as_ranks(EngineOptions& options, Device& device);

RankLimits limits_of(const EnginePlan& plan);

// Returns a function that makes the RankHost of each rank of this process, except rank 0's.
MakeRankHost rank_hosts(const EngineOptions& options);

}  // namespace tessera
