#include "tessera/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/engine/ranks/lockstep.h"
#include "tessera/runner/ranks/rank_group.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

bool Engine::idle() const { return scheduler_->idle() && runner_->in_flight() == 0; }

Status Engine::health() const {
  if (options_.lockstep != nullptr) return options_.lockstep->health();
  return ranks_ == nullptr ? ok_status() : ranks_->health();
}

void Engine::when_lost(std::function<void()> call) {
  if (ranks_ != nullptr) ranks_->when_lost(std::move(call));
}

bool Engine::awaited() const { return options_.lockstep != nullptr && options_.lockstep->awaits(options_.replica); }

void Engine::when_awaited(std::function<void()> call) {
  if (options_.lockstep != nullptr) options_.lockstep->when_awaited(options_.replica, std::move(call));
}

void Engine::leave_lockstep() {
  if (options_.lockstep == nullptr) return;
  const Status ended = runner_->end_accompanied();
  options_.lockstep->communicator(options_.replica).abort(ended.ok() ? "its engine ends" : ended.message());
}

void Engine::fail_lockstep(const Status& why) {
  if (options_.lockstep != nullptr) options_.lockstep->communicator(options_.replica).abort(why.message());
}

void Engine::take_out(RequestId id, FinishReason reason) {
  const std::unique_ptr<Sequence> sequence = scheduler_->remove(id, reason == FinishReason::kError);
  if (sequence == nullptr) return;
  for (ScheduledBatch& batch : batches_) {
    for (ScheduledBatch::Entry& entry : batch.entries)
      if (entry.sequence == sequence.get()) entry.sequence = nullptr;
  }
  Completion& done = sequence->result;
  done.output_ids.assign(sequence->tokens.begin() + sequence->prompt_tokens(),
                         sequence->tokens.end() - sequence->pending);
  done.finish = reason;
  done.prompt_tokens = sequence->prompt_tokens();
  done.seed = sequence->seed;
  done.total_ms = sequence->elapsed_ms();
  finished_.emplace(id, std::move(done));
}

void Engine::finish(RequestEvent event) {
  const RequestId id = event.request;
  const FinishReason reason = event.finish;
  events_.push_back(std::move(event));
  if (reason != FinishReason::kNone) take_out(id, reason);
}

void Engine::end_expired() {
  expired_.clear();
  scheduler_->find_expired(Clock::now(), expired_);
  for (const RequestId id : expired_) {
    finish({.request = id,
            .finish = FinishReason::kTimeout,
            .error = cancelled("the request has taken longer than its timeout_s")});
  }
}

Result<std::span<RequestEvent>> Engine::step() {
  events_.clear();
  TRY(health());  // otherwise sequences may wait for tokens that never come
  end_expired();
  // A sequence that needs its last token on the host is collected before anything else is scheduled.
  const bool overlap = overlap_ && !scheduler_->reads_at_once();
  while (!overlap && runner_->in_flight() > 0) TRY(collect_oldest());
  const int before = runner_->in_flight();
  TRY(submit_next(overlap));
  const bool runs_ahead = overlap && runner_->in_flight() > before;
  if (runner_->in_flight() > (runs_ahead ? runner_->max_in_flight() - 1 : 0)) TRY(collect_oldest());
  return std::span<RequestEvent>(events_);
}

Clock::time_point Engine::step_due() const {
  // In a pipeline, the first stage has nothing to do while the last one ends a step, so steps are not delayed.
  const bool paced = overlap_ && options_.pp_size == 1 && !scheduler_->reads_at_once();
  return paced ? pace_.due() : Clock::time_point{};
}

// Schedules a batch behind those in flight and enqueues it.
Status Engine::submit_next(bool overlap) {
  ScheduledBatch& next = batches_[static_cast<std::size_t>(runner_->in_flight())];
  const Clock::time_point begin = Clock::now();
  {
    const StepProfiler::Scope scheduling(profiler(), HostWork::kSchedule);
    scheduler_->next(next, /*in_turns=*/overlap);
  }
  if (next.entries.empty()) return accompany();
  const auto size = [](std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns); };
  logits_.resize(next.wants_logits ? size(next.batch.num_wanted_rows(), config_.num_logits()) : 0);
  hidden_states_.resize(size(std::ssize(next.hidden_rows), config_.hidden_size));
  Status encoded = encode_images(next);
  if (options_.lockstep != nullptr) options_.lockstep->begin(options_.replica);
  const Result<Decision> decision = !encoded.ok() ? Result<Decision>(std::move(encoded))
                                                  : runner_->submit({.batch = next.batch,
                                                                     .rope_positions = next.rope_positions,
                                                                     .sampling = next.sampling,
                                                                     .edits = &next.edits,
                                                                     .logprob_targets = next.logprob_targets,
                                                                     .top_logprobs = next.top_logprobs,
                                                                     .logits = logits_,
                                                                     .hidden_states = hidden_states_,
                                                                     .hidden_rows = next.hidden_rows});
  if (decision.ok()) {
    next.decision = *decision;
    if (profiler_ != nullptr) keep_facts(next);
    watch_fallbacks(*decision);
    scheduler_->mark_submitted(next);
    const bool decodes = next.phase() == ForwardPhase::kDecode;
    pace_.submitted({.decodes = decodes, .rows = decodes ? next.num_decoding : next.batch.num_tokens()}, begin,
                    Clock::now());
    ++steps_;
    return return_images(next);
  }
  return not_submitted(next, decision.status());
}

// Handles a batch that was not submitted. A failure ends the requests of that batch and of no other. With several
// ranks, a batch that failed only because another rank failed in an earlier forward is computed again.
Status Engine::not_submitted(const ScheduledBatch& next, const Status& error) {
  if (error.code() == StatusCode::kDeviceLost) return error;
  if (error.code() == StatusCode::kCancelled) {
    scheduler_->forget_results(next);
    const bool is_explained = TRY(drop_in_flight(/*fails_oldest=*/true));
    if (!is_explained) fail(batches_.front(), internal_error(error.message()));
    scheduler_->compute_again();
    return ok_status();
  }
  fail(next, error);
  if (ranks_ != nullptr && runner_->in_flight() > 0) {  // the data exchanged between ranks was lost with it
    TRY(drop_in_flight(/*fails_oldest=*/false));
    scheduler_->compute_again();
    return ok_status();
  }
  // Work enqueued before the failure may have overwritten the ids that the previous step left on the device.
  while (runner_->in_flight() > 0) TRY(collect_oldest());
  scheduler_->forget_rows();
  return ok_status();
}

// This engine has nothing to compute, but other ranks may need it.
Status Engine::accompany() {
  if (!awaited()) return ok_status();
  options_.lockstep->begin(options_.replica);
  return runner_->accompany();
}

std::int64_t Engine::shape_compiles() const {
  return runner_->prefill().executable().num_binds() + runner_->decode().executable().num_binds() +
         runner_->head().executable().num_binds();
}

void Engine::watch_fallbacks(const Decision& decision) {
  const std::int64_t compiles = shape_compiles();
  const bool compiled = std::exchange(known_shape_compiles_, compiles) != compiles;
  if (const std::optional<std::string> warning = watch_.add(decision, compiled, Clock::now()))
    log_warn("dispatch", "{}", *warning);
}

Result<StepOutputs> Engine::collect() {
  const Clock::time_point begin = Clock::now();
  Result<StepOutputs> outputs = runner_->collect();
  pace_.collected(begin, Clock::now());
  return outputs;
}

Status Engine::collect_oldest() {
  const Result<StepOutputs> outputs = collect();
  const StepProfiler::Scope collecting(profiler(), HostWork::kCollect);
  if (outputs.ok()) {
    const ScheduledBatch& oldest = batches_.front();
    for (const ScheduledBatch::Entry& entry : oldest.entries)
      if (entry.sequence != nullptr) collect_entry(oldest, entry, *outputs);
    end_oldest();
    return ok_status();
  }
  if (outputs.status().code() == StatusCode::kDeviceLost) return outputs.status();
  fail(batches_.front(), outputs.status());
  end_oldest();
  // Batches scheduled since then build on pages that the failed forward left undefined: those of its sequences, which
  // other sequences found in the prefix cache, and in a pipeline those of the steps that are lost with it.
  TRY(drop_in_flight(/*fails_oldest=*/false));
  scheduler_->compute_again();
  return ok_status();
}

// Removes the oldest batch from the list of batches in flight.
void Engine::end_oldest() {
  std::rotate(batches_.begin(), batches_.begin() + 1, batches_.end());
  batches_.back().entries.clear();
}

// Waits for all forwards in flight and keeps none of their results, so that their sequences are computed again. With
// `fails_oldest`, the first failed forward among them fails its requests. Returns whether that happened.
Result<bool> Engine::drop_in_flight(bool fails_oldest) {
  bool failed = false;
  while (runner_->in_flight() > 0) {
    const Status collected = collect().status();
    if (collected.code() == StatusCode::kDeviceLost) return collected;
    if (fails_oldest && !collected.ok() && !failed) {
      fail(batches_.front(), collected);
      failed = true;
    } else {
      scheduler_->forget_results(batches_.front());
    }
    end_oldest();
  }
  return failed;
}

void Engine::fail(const ScheduledBatch& scheduled, const Status& error) {
  for (const ScheduledBatch::Entry& entry : scheduled.entries) {
    if (entry.sequence == nullptr) continue;
    finish({.request = entry.sequence->id, .finish = FinishReason::kError, .error = error});
  }
  scheduler_->forget_results(scheduled);
  // The prefix cache has a forward's pages from its submission on. Which of them the failed forward left undefined is
  // not recorded, so all are dropped; failures are rare.
  scheduler_->flush_prefixes();
}

std::optional<Completion> Engine::take(RequestId id) {
  const auto it = finished_.find(id);
  if (it == finished_.end()) return std::nullopt;
  Completion done = std::move(it->second);
  finished_.erase(it);
  return done;
}

Result<bool> Engine::idle_work() {
  if (!idle()) return internal_error("idle work is asked for while requests run");
  const bool left = TRY(runner_->idle_work()) || TRY(profiles_->measure_algorithms(*device_)) ||
                    TRY(profiles_->measure_schedules(*device_));
  known_shape_compiles_ = shape_compiles();  // sizes bound by idle work delayed no forward
  // Saves now and then, so that a killed process loses little.
  constexpr std::chrono::milliseconds kSaveEvery(500);
  const Clock::time_point now = Clock::now();
  if (!left || now >= next_save_) {
    profiles_->save(runner_->costs());
    next_save_ = now + kSaveEvery;
  }
  return left;
}

Status Engine::start_profile() {
  profiled_.clear();
  profiler_ = TRY(StepProfiler::start(*device_, runner_->stream()));
  runner_->set_profiler(profiler_.get());
  return ok_status();
}

EngineProfile Engine::end_profile() {
  runner_->set_profiler(nullptr);
  EngineProfile profile{.steps = std::exchange(profiled_, {}),
                        .forwards = profiler_->forwards(),
                        .host = profiler_->host(),
                        .origin = profiler_->origin()};
  profiler_.reset();
  return profile;
}

void Engine::keep_facts(const ScheduledBatch& batch) {
  profiled_.push_back({.phase = batch.phase(),
                       .requests = batch.batch.num_requests(),
                       .decoding = batch.num_decoding,
                       .tokens = batch.batch.num_tokens(),
                       .running = scheduler_->num_running(),
                       .queued = scheduler_->num_waiting()});
}

void Engine::cancel(RequestId id) { take_out(id, FinishReason::kCancelled); }

Result<std::vector<Completion>> Engine::run(std::span<const Request> requests,
                                            const std::function<void(std::size_t, const RequestEvent&)>& on_event) {
  std::vector<RequestId> ids;
  ids.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Result<RequestId> id = submit(requests[i]);
    if (!id.ok()) {
      for (const RequestId queued : ids) {
        cancel(queued);
        take(queued);
      }
      return requests.size() > 1 ? id.status().with_context(fmt::format("request {}", i)) : id.status();
    }
    ids.push_back(*id);
  }
  Status failure;
  while (!idle()) {
    for (const RequestEvent& event : TRY(step())) {
      if (!event.error.ok() && failure.ok()) failure = event.error;
      // Ids are in ascending order.
      const auto it = std::lower_bound(ids.begin(), ids.end(), event.request);
      if (on_event && it != ids.end() && *it == event.request)
        on_event(static_cast<std::size_t>(it - ids.begin()), event);
    }
  }
  std::vector<Completion> completions;
  completions.reserve(ids.size());
  for (const RequestId id : ids) completions.push_back(*take(id));
  TRY(failure);
  return completions;
}

EngineStats Engine::stats() const {
  EngineStats stats;
  read_stats(stats);
  return stats;
}

void Engine::read_stats(EngineStats& stats) const {
  scheduler_->report(stats);
  stats.images.encoded = encoded_images_;
  stats.images.cached_bytes = scheduler_->num_image_rows() * runner_->embedding_row_bytes();
  if (const VisionRunner* tower = runner_->vision()) {
    stats.images.graph_hits = tower->counters().graph_forwards;
    stats.images.forwards = stats.images.graph_hits + tower->counters().eager_forwards;
    stats.images.by_reason = tower->counters().forwards;
  }
  stats.images.tower_seconds = tower_seconds_;
  stats.output_tokens = output_tokens_;
  stats.steps = steps_;
  stats.forwards = runner_->counters();
  stats.graphs = inventory_.of(*runner_);
  stats.profile_cache_hits = profiles_->cache_hits();
}

}  // namespace tessera
