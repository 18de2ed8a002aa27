// Lists all implementations of StepWay (step_way.h), and chooses one.
//
// To add another, write a class that implements StepWay and a function that makes it, both in one file. Declare the
// function here, and add it to the list in make_step_way() (see the layer's README.md).
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/runner/steps/step_way.h"

namespace tessera {

// Returns the StepWay that fits the options and the graphs.
Result<std::unique_ptr<StepWay>> make_step_way(const StepContext& context);

// Each function returns null if its StepWay does not fit the options and the graphs.
using MakeStepWay = Result<std::unique_ptr<StepWay>>(const StepContext& context);
MakeStepWay make_data_parallel;  // data-parallel ranks, which agree on a graph for each forward
MakeStepWay make_host_pipeline;  // rank 0 of a pipeline on a host device, which runs its part of a forward in collect()
MakeStepWay make_leader;         // rank 0, which sends each forward to the others and runs it at the same time
MakeStepWay make_peer;           // one of several ranks that all submit the same forwards
MakeStepWay make_alone;          // the only rank

// Returns whether the ranks are a pipeline on a host device. Each rank then collects a forward as soon as the rank has
// run its own part, and rank 0 runs its part in collect().
bool collects_as_it_runs(const RunnerParts& parts);

}  // namespace tessera
