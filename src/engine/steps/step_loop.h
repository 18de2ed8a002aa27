// The engine's loop: each call of step() makes a batch, submits its forward, and turns the results of a forward into
// events.
//
// The Scheduler puts sequences into batches, and the Collector turns a forward's results into events. This class calls
// both in turn, and adds the other things that a forward needs: images, adapters and drafts. Recovery handles a failed
// forward.
//
// Only the engine's thread uses this class.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tessera/base/status.h"
#include "tessera/base/timeline.h"
#include "tessera/engine/drafts/draft_profit.h"
#include "tessera/engine/drafts/draft_slowdown.h"
#include "tessera/engine/drafts/draft_trials.h"
#include "tessera/engine/outputs/collector.h"
#include "tessera/engine/outputs/outcomes.h"
#include "tessera/engine/outputs/recovery.h"
#include "tessera/engine/report/engine_report.h"
#include "tessera/engine/schedule/flights.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/schedule/step_pace.h"
#include "tessera/engine/start/loaded_model.h"
#include "tessera/engine/steps/forced_acceptance.h"
#include "tessera/engine/steps/image_feed.h"
#include "tessera/engine/steps/layer_drafts.h"

namespace tessera {

class StepLoop {
 public:
  // All arguments must outlive the loop.
  StepLoop(LoadedModel& model, Scheduler& scheduler, ImageFeed& images, EngineReport& report, DraftTrials& trials);

  // Adds a sequence to the scheduler.
  void add(std::unique_ptr<Sequence> sequence);
  bool idle() const { return scheduler_.idle() && flights_.count() == 0; }
  // Does one step; see Engine::step().
  Result<std::span<RequestEvent>> step();
  // Returns the best time for the next step(); see Engine::step_due().
  StepPace::Clock::time_point due() const;
  Outcomes& outcomes() { return outcomes_; }

  // Returns the measured time in milliseconds that the next-token layer takes to make one draft for every sequence.
  // Returns 0 if there is no such layer.
  double draft_ms() const { return layer_drafts_ ? layer_drafts_->draft_ms() : 0; }
  // Returns DraftSlowdown::factor(), which compares steps that have drafts to steps that have none.
  double draft_slowdown(std::int64_t requests) const { return slowdown_.factor(requests); }
  const DraftStats& drafts() const { return drafts_; }
  const PrefillWork& prefill() const { return flights_.prefill(); }
  std::int64_t output_tokens() const { return collector_.output_tokens(); }
  const std::optional<Timeline::Phase>& first_token() const { return collector_.first_token(); }

 private:
  Status submit_next(bool overlap);
  // Tells DraftSlowdown that the step of `next` began at `begin`.
  void begin_measured(const ScheduledBatch& next, StepPace::Clock::time_point begin);
  // begin_judging() begins to measure whether the drafts of `next` save time. If steps are not scheduled ahead, call
  // begin_judging() just before the forward is submitted. end_judging() ends the measurement. Call it when the results
  // of a forward have arrived.
  void begin_judging(const ScheduledBatch& next);
  void end_judging();
  // Lets no sequence draft any more if drafting costs more time than it saves. Precondition: no batch is in flight.
  void stop_lossy_drafting();
  Status write_adapters();
  Status submitted(ScheduledBatch& batch, const Decision& decision, StepPace::Clock::time_point begin);
  Status collect_oldest();
  // Lets the next-token layer or draft model read a forward that has ended, or records that the forward is not read.
  // Precondition: the model has such a layer or draft model.
  void let_layer_read(const ScheduledBatch& batch, std::span<const TokenId> sampled);
  void collect(const ScheduledBatch& batch, ScheduledBatch::Entry entry, const StepOutputs& outputs);
  StepProfiler* profiler() const { return report_.recorder().profiler(); }
  Peers& peers() { return *model_.peers; }
  ModelRunner& runner() { return *model_.runner; }

  LoadedModel& model_;
  Scheduler& scheduler_;
  ImageFeed& images_;
  EngineReport& report_;
  StepPace pace_;
  Flights flights_;
  Collector collector_;
  Outcomes outcomes_;
  Recovery recovery_;
  std::optional<LayerDrafts> layer_drafts_;            // none: no next-token layer or draft model makes drafts
  std::optional<ForcedAcceptance> forced_acceptance_;  // used only for measurements
  DraftStats drafts_;
  DraftSlowdown slowdown_;
  DraftTrials& trials_;
  DraftProfit profit_;
  std::optional<StepPace::Clock::time_point> collected_;  // when the results of the last step arrived
  // The step in flight, if begin_judging() began to measure it.
  struct Judged {
    DraftSaving saving;
    double waited_ms;
    StepPace::Clock::time_point begin;
  };
  std::optional<Judged> judged_;
};

}  // namespace tessera
