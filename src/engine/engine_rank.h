// The ranks of an engine beside its own: each plans, opens a device, loads its slice of the weights and makes a runner,
// on a thread of its own (runner/rank_group.h).
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/runner/rank_group.h"

namespace tessera {

// Null for one rank. Otherwise the ranks' threads, and the plan cut to what fits all of them. `plan` is rank 0's; the
// runner that is made of it has the group in its options, and the weights of all ranks load by RankGroup::load with
// limits_of(plan).
Result<std::unique_ptr<RankGroup>> start_ranks(const EngineOptions& options, EnginePlan& plan);

RankLimits limits_of(const EnginePlan& plan);

}  // namespace tessera
