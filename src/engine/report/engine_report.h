// Reports on an engine at work: counts its steps, warns of forwards without a graph, and records profiles.
#pragma once

#include <cstdint>

#include "tessera/engine/report/fallback_watch.h"
#include "tessera/engine/report/profile_recorder.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/start/loaded_model.h"
#include "tessera/engine/stats/engine_stats.h"
#include "tessera/engine/stats/graph_inventory.h"

namespace tessera {

class EngineReport {
 public:
  // Both arguments must outlive the report.
  EngineReport(const LoadedModel& model, const Scheduler& scheduler)
      : model_(model), scheduler_(scheduler), recorder_(*model.runner) {}

  ProfileRecorder& recorder() { return recorder_; }
  const ProfileRecorder& recorder() const { return recorder_; }
  FallbackWatch& watch() { return watch_; }

  // Counts a forward that was submitted. Precondition: the scheduler has not yet marked its batch as submitted.
  void submitted(const ScheduledBatch& batch);
  // Call it after idle work. If the work has bound sizes to kernels, these bindings do not count as a delay of the next
  // forward.
  void worked_idly();
  // Fills in the statistics of the scheduler, the runner and this report. Allocates only when a new kind of forward has
  // run.
  void read(EngineStats& stats) const;

 private:
  const LoadedModel& model_;
  const Scheduler& scheduler_;
  FallbackWatch watch_;
  ProfileRecorder recorder_;
  mutable GraphInventoryCache inventory_;
  std::int64_t steps_ = 0;
};

}  // namespace tessera
