// Records where the time of an engine's steps goes (engine_profile.h).
#pragma once

#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/report/engine_profile.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/step_profiler.h"

namespace tessera {

// While it records, the recorder costs a few microseconds a step, and memory that grows until end().
class ProfileRecorder {
 public:
  // `runner` must outlive the recorder.
  explicit ProfileRecorder(ModelRunner& runner) : runner_(runner) {}

  // Start and end a recording. Precondition of both: no forward is in flight.
  Status start();
  EngineProfile end();
  // Returns the profiler for work between steps; null while nothing is recorded.
  StepProfiler* profiler() const { return profiler_.get(); }
  // Adds a forward that was submitted; has no effect while nothing is recorded.
  void add(const ScheduledBatch& batch, const Scheduler& scheduler);

 private:
  ModelRunner& runner_;
  std::unique_ptr<StepProfiler> profiler_;
  std::vector<StepFacts> steps_;  // one for each forward submitted since the start
};

}  // namespace tessera
