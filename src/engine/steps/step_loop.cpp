#include "tessera/engine/steps/step_loop.h"

#include <utility>

namespace tessera {

StepLoop::StepLoop(LoadedModel& model, Scheduler& scheduler, ImageFeed& images, EngineReport& report,
                   DraftTrials& trials)
    : model_(model),
      scheduler_(scheduler),
      images_(images),
      report_(report),
      flights_(runner(), pace_),
      collector_(model),
      outcomes_(scheduler, flights_),
      recovery_(peers(), scheduler, flights_, outcomes_),
      trials_(trials) {
  if (model.options.drafts.by_layer()) layer_drafts_.emplace(runner(), scheduler.cache());
  if (const DraftOptions& drafts = model.options.drafts; drafts.forced_tokens > 0)
    forced_acceptance_.emplace(drafts.forced_tokens, drafts.most());
}

void StepLoop::add(std::unique_ptr<Sequence> sequence) {
  pace_.arrived(sequence->arrived);
  scheduler_.add(std::move(sequence));
}

Result<std::span<RequestEvent>> StepLoop::step() {
  outcomes_.begin_step();
  TRY(peers().health());  // after an error, sequences could wait for tokens that never come
  outcomes_.end_expired();
  // If steps do not overlap, or if a sequence needs its newest token on the host, first collects all batches in flight.
  const bool overlap = model_.steps.overlap && !scheduler_.reads_at_once();
  while (!overlap && flights_.count() > 0) TRY(collect_oldest());
  if (overlap) {
    profit_.clear();
  } else {
    stop_lossy_drafting();
  }
  const int before = flights_.count();
  TRY(submit_next(overlap));
  const bool runs_ahead = overlap && flights_.count() > before;
  if (flights_.count() > (runs_ahead ? flights_.most() - 1 : 0)) TRY(collect_oldest());
  return outcomes_.events();
}

StepPace::Clock::time_point StepLoop::due() const {
  return model_.steps.paced && !scheduler_.reads_at_once() ? pace_.due() : StepPace::Clock::time_point{};
}

// The scheduled batch may be the first batch that uses some adapters. The scheduler has chosen a slot on the device for
// each of these adapters. Writes the adapters to their slots.
Status StepLoop::write_adapters() {
  Status status = ok_status();
  std::int64_t written = 0;
  for (const AdapterSlots::Write& write : scheduler_.adapters().writes()) {
    status = runner().write_adapter(write.slot, write.content);
    if (!status.ok()) break;
    ++written;
  }
  scheduler_.adapters().mark_written(written);
  return status;
}

// Schedules a batch after those in flight and enqueues it.
Status StepLoop::submit_next(bool overlap) {
  ScheduledBatch& next = flights_.next();
  const StepPace::Clock::time_point begin = StepPace::Clock::now();
  if (layer_drafts_ && !overlap) scheduler_.forget_rows();  // this step's drafts overwrite the ids on the device
  {
    const StepProfiler::Scope scheduling(profiler(), HostWork::kSchedule);
    scheduler_.next(next, /*in_turns=*/overlap);
  }
  if (model_.options.drafts.any()) begin_measured(next, begin);
  if (next.entries.empty()) return peers().run_idle_forward(runner());
  if (layer_drafts_ && !overlap) layer_drafts_->complete(next);
  next.fill_draft_masks(runner().vocab_size());
  const ForwardInputs inputs = collector_.inputs_of(next);
  Status encoded = images_.encode(next);
  if (encoded.ok()) encoded = write_adapters();
  peers().begin_forward();
  if (!overlap) begin_judging(next);
  const Result<Decision> decision = encoded.ok() ? runner().submit(inputs) : Result<Decision>(encoded);
  if (decision.ok()) return submitted(next, *decision, begin);
  slowdown_.begin(std::nullopt, begin);
  judged_.reset();
  TRY(recovery_.not_submitted(next, decision.status()));
  // Collects all batches in flight, because work that was enqueued before the failure may have overwritten the ids that
  // the previous step left on the device. After that, the next step can take its ids from the host.
  while (flights_.count() > 0) TRY(collect_oldest());
  scheduler_.forget_rows();
  return ok_status();
}

// Tells DraftSlowdown that a step begins. The step is measured only if all requests decode. If a next-token layer makes
// drafts, the time of a draft must also have been measured. Without this time, the predicted time of a step would be
// too short.
void StepLoop::begin_measured(const ScheduledBatch& next, StepPace::Clock::time_point begin) {
  if (next.entries.empty() || next.phase() != ForwardPhase::kDecode || (layer_drafts_ && draft_ms() == 0)) {
    slowdown_.begin(std::nullopt, begin);
    return;
  }
  const std::int64_t requests = std::ssize(next.entries);
  const bool has_drafts = next.batch.has_drafts();
  double predicted_ms = 0;
  if (!has_drafts) {
    predicted_ms = drafting_ms(requests, requests, runner().dispatch_table()).value_or(0);
  } else if (next.saving) {
    predicted_ms = next.saving->decode_ms();
  }
  slowdown_.begin(DraftSlowdown::Step{.requests = requests, .predicted_ms = predicted_ms, .has_drafts = has_drafts},
                  begin);
}

// Does not judge steps in which drafting does not show its usual cost. These are steps that would not be scheduled
// ahead even without drafts, steps of a pipeline, and steps before the time of a draft was measured.
void StepLoop::begin_judging(const ScheduledBatch& next) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  judged_.reset();
  if (!model_.steps.overlap || runner().options().has_stages() || draft_ms() == 0) return;
  if (!next.saving || !collected_ || !next.waits_for_drafts_alone) return;
  const StepPace::Clock::time_point now = StepPace::Clock::now();
  judged_ = {.saving = *next.saving, .waited_ms = Milliseconds(now - *collected_).count(), .begin = now};
}

void StepLoop::end_judging() {
  collected_ = StepPace::Clock::now();
  if (!judged_) return;
  const std::chrono::duration<double, std::milli> forward = *collected_ - judged_->begin;
  profit_.add(judged_->saving, judged_->waited_ms, forward.count());
  judged_.reset();
}

void StepLoop::stop_lossy_drafting() {
  if (!profit_.is_loss()) return;
  profit_.clear();
  if (scheduler_.stop_drafting()) trials_.stop(DraftTrials::Clock::now(), scheduler_.num_running());
}

// Records that a batch was enqueued. Its scheduling began at `begin`.
Status StepLoop::submitted(ScheduledBatch& batch, const Decision& decision, StepPace::Clock::time_point begin) {
  batch.decision = decision;
  report_.submitted(batch);
  scheduler_.mark_submitted(batch);
  if (layer_drafts_) scheduler_.forget_layer_rows();
  flights_.enqueued(batch, begin);
  return images_.read_back(batch);
}

Status StepLoop::collect_oldest() {
  const Result<StepOutputs> outputs = flights_.collect();
  const StepProfiler::Scope collecting(profiler(), HostWork::kCollect);
  if (!outputs.ok()) {
    judged_.reset();
    return recovery_.not_collected(outputs.status());
  }
  end_judging();
  ScheduledBatch& oldest = flights_.oldest();
  if (layer_drafts_) layer_drafts_->write_ids(oldest);
  const StepOutputs chosen = forced_acceptance_ ? forced_acceptance_->choose(oldest, *outputs) : *outputs;
  if (layer_drafts_) let_layer_read(oldest, chosen.sampled);
  for (const ScheduledBatch::Entry& entry : oldest.entries) {
    if (entry.sequence != nullptr) collect(oldest, entry, chosen);
  }
  flights_.end_oldest();
  return ok_status();
}

// Runs before the results become events, so that the device works meanwhile. The next-token layer reads the forward's
// rows only if a sequence may draft (reads_at_once()). As long as a sequence may draft, step() enqueues no forwards
// ahead. However, forwards that were enqueued before this sequence arrived may still be in flight. In that case the
// layer reads nothing, because these forwards may have overwritten its inputs.
void StepLoop::let_layer_read(const ScheduledBatch& batch, std::span<const TokenId> sampled) {
  if (!scheduler_.reads_at_once() || flights_.count() > 0) return layer_drafts_->skip(batch);
  layer_drafts_->read(batch, sampled);
  scheduler_.forget_rows();  // read() may have overwritten the ids of requests that do not draft
}

// Accepts drafts in order. A draft is accepted if it equals the token that was sampled from the preceding row. In that
// case the draft's row was computed with the correct preceding tokens, so the token sampled from the draft's row is the
// sequence's next token.
void StepLoop::collect(const ScheduledBatch& batch, ScheduledBatch::Entry entry, const StepOutputs& outputs) {
  const std::int64_t accepted = kept_drafts(batch, entry, outputs.sampled);
  std::optional<RequestEvent> event = collector_.collect(batch, entry, outputs, profiler());
  std::int64_t kept = 0;
  while (event && event->finish == FinishReason::kNone && kept < accepted) {
    outcomes_.report(*std::move(event));
    ++kept;
    keep_draft(entry, scheduler_.cache().has_states());
    event = collector_.collect_next(batch, entry, outputs, profiler());
  }
  if (entry.drafts > 0) {
    const bool ends_by_draft = event && event->token && kept < accepted;
    const std::int64_t output = kept + (ends_by_draft ? 1 : 0);
    drafts_.add(entry.drafts, output);
    entry.sequence->result.drafts.add(entry.drafts, output);
    entry.sequence->drafter->judge(entry.drafts, kept);
  }
  if (entry.sequence->drafter && entry.sequence->drafter->is_fruitless()) scheduler_.stop_drafting(*entry.sequence);
  if (event) outcomes_.report(*std::move(event));  // may end the sequence
}

}  // namespace tessera
