// Lists all ways to run a step (StepWay), and chooses one.
//
// To add one, write a class that implements StepWay and a function that makes it, both in one file. The function is
// declared here and has its place in make_step_way() (README.md of the layer).
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/runner/steps/step_way.h"

namespace tessera {

// Returns the StepWay that fits the options and the graphs.
Result<std::unique_ptr<StepWay>> make_step_way(const StepContext& context);

// Each function returns null if its StepWay does not fit the options and the graphs.
using MakeStepWay = Result<std::unique_ptr<StepWay>>(const StepContext& context);
MakeStepWay make_data_parallel;  // ranks with tokens of their own, which agree on a graph for each forward
MakeStepWay make_host_pipeline;  // rank 0 of a pipeline on a host device, which runs its part when it collects
MakeStepWay make_leader;         // rank 0, which tells the others each forward and runs it beside them
MakeStepWay make_peer;           // one of several ranks that all submit the same forwards
MakeStepWay make_alone;          // the only rank

// Returns whether the ranks are a pipeline on a host device: each rank collects a forward once it has run its own part,
// rank 0 in collect().
bool collects_as_it_runs(const RunnerParts& parts);

}  // namespace tessera
