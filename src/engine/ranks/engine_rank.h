// The ranks of an engine beside its own: each plans, opens a device, loads its slice of the weights and makes a runner,
// on a thread of its own (runner/ranks/rank_group.h).
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {

// Null for one rank. Otherwise the ranks' threads and the other nodes, for which it waits, and the plan cut to what
// fits all of them. `device` and `plan` are rank 0's; the runner that is made of it has the group in its options, and
// the weights of all ranks load by RankGroup::load with limits_of(plan).
Result<std::unique_ptr<RankGroup>> start_ranks(const EngineOptions& options, Device& device, EnginePlan& plan);

// plan_engine_with_profile(), cut as start_ranks() would where the devices of all stages are as this one: nothing is
// started.
Result<EnginePlan> plan_as_ranks(EngineOptions& options, Device& device);

RankLimits limits_of(const EnginePlan& plan);

// Makes the ranks of this process that are not rank 0.
MakeRankHost rank_hosts(const EngineOptions& options);

}  // namespace tessera
