#include "tessera/engine/report/profile_recorder.h"

#include <utility>

namespace tessera {

Status ProfileRecorder::start() {
  steps_.clear();
  profiler_ = TRY(StepProfiler::start(runner_.device(), runner_.stream()));
  runner_.set_profiler(profiler_.get());
  return ok_status();
}

EngineProfile ProfileRecorder::end() {
  runner_.set_profiler(nullptr);
  EngineProfile profile{.steps = std::exchange(steps_, {}),
                        .forwards = profiler_->forwards(),
                        .host = profiler_->host(),
                        .origin = profiler_->origin()};
  profiler_.reset();
  return profile;
}

void ProfileRecorder::add(const ScheduledBatch& batch, const Scheduler& scheduler) {
  if (profiler_ == nullptr) return;
  steps_.push_back({.phase = batch.phase(),
                    .requests = batch.batch.num_requests(),
                    .decoding = batch.num_decoding,
                    .tokens = batch.batch.num_tokens(),
                    .running = scheduler.num_running(),
                    .queued = scheduler.num_waiting()});
}

}  // namespace tessera
