#include "tessera/runner/model_runner.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/ops/comm/collective.h"
#include "tessera/runner/dispatch/agreed_shape.h"
#include "tessera/runner/memory/measure_memory.h"
#include "tessera/runner/ranks/rank_group.h"
#include "tessera/runner/verify/step_digest.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

ModelRunner::ModelRunner(std::unique_ptr<RunnerParts> parts, StepResults results)
    : parts_(std::move(parts)),
      dispatcher_(*parts_),
      step_(*parts_),
      capture_(*parts_, dispatcher_, step_),
      measurement_(*parts_, dispatcher_),
      full_measurement_(*parts_, dispatcher_),
      results_(std::move(results)),
      done_(static_cast<std::size_t>(max_in_flight())),
      digests_(done_.size()),
      decisions_(done_.size()) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(ModelGraphs graphs, Weights weights, Device& device,
                                                         RunnerOptions options) {
  StepResults results =
      TRY(StepResults::create(device, options.max_in_flight, options.max_requests, options.max_tokens));
  std::unique_ptr<RunnerParts> parts =
      TRY(RunnerParts::create(std::move(graphs), std::move(weights), device, std::move(options)));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(std::move(parts), std::move(results)));
  for (std::unique_ptr<Event>& done : runner->done_) done = TRY(device.create_event());
  if (runner->has_own_tokens()) runner->accompanied_.resize(runner->done_.size());
  for (std::unique_ptr<Event>& passed : runner->accompanied_) passed = TRY(device.create_event());
  RankGroup* const ranks = runner->parts_->options.ranks;
  if (ranks != nullptr && runner->collects_as_it_runs())
    ranks->before_orders([made = runner.get()] { made->run_all_deferred(); });
  return runner;
}

ModelRunner::~ModelRunner() {
  if (parts_->options.ranks != nullptr) parts_->options.ranks->before_orders({});
}

Result<bool> ModelRunner::idle_work() {
  if (in_flight() > 0) return internal_error("idle work is asked for while a forward is in flight");
  TRY(end_accompanied());
  const bool tower_waits =
      parts_->vision != nullptr && parts_->vision->has_wanted() && dispatcher_.table().graphs_enabled;
  if (tower_waits || captures_when_idle()) return capture_.capture_next();
  if (TRY(measurement_.measure_next())) return true;
  if (TRY(full_measurement_.measure_next())) return true;
  return parts_->vision != nullptr && TRY(parts_->vision->measure_next());
}

Result<ForwardOutputs> ModelRunner::forward(const ForwardInputs& inputs) {
  ForwardOutputs outputs;
  outputs.decision = TRY(submit(inputs));
  outputs.step = TRY(collect());
  return outputs;
}

Status ModelRunner::reserve_embeddings(std::int64_t rows) {
  if (rows <= parts_->embeddings->rows()) return ok_status();
  return parts_->together({.kind = RankOrderKind::kReserveRows, .size = rows},
                          [&] { return parts_->embeddings->reserve(rows); });
}

Status ModelRunner::check_inputs(const ForwardInputs& inputs) const {
  if (in_flight() == max_in_flight())
    return internal_error(fmt::format("{} forwards are in flight, and none was collected", in_flight()));
  return check(inputs, {.max_tokens = parts_->options.max_tokens,
                        .max_requests = parts_->options.max_requests,
                        .cache_groups = parts_->num_cache_groups(),
                        .vocab_size = parts_->vocab_size,
                        .hidden_size = parts_->hidden_size,
                        .embedding_rows = parts_->embeddings->rows(),
                        .embedding_row_values = parts_->embeddings->row_values()});
}

Result<Decision> ModelRunner::decide(const ForwardInputs& inputs) {
  TRY(check_inputs(inputs));
  const BatchShape own = shape_of(inputs.batch, inputs.force_eager);
  if (!has_own_tokens()) return dispatcher_.decide(own);
  const BatchShape agreed = TRY(agree_on_shape(*parts_->options.communicator, own));
  Decision decision = TRY(dispatcher_.decide(agreed));
  decision.padding += agreed.tokens - own.tokens;
  return decision;
}

Result<Decision> ModelRunner::submit(const ForwardInputs& inputs) {
  RankGroup* const ranks = parts_->options.ranks;
  if (ranks != nullptr && ranks->leads()) return submit_to_ranks(inputs, TRY(decide(inputs)));
  Result<Decision> decided = decide(inputs);
  if (decided.ok()) decided = submit_here(inputs, *decided, parts_->ranks() == 1);
  // Other ranks must not wait for a rank that failed.
  if (!decided.ok() && parts_->options.communicator != nullptr)
    parts_->options.communicator->abort(decided.status().message());
  if (!decided.ok() && has_own_tokens()) return device_lost(decided.status().message());
  return decided;
}

Status ModelRunner::accompany() {
  if (!has_own_tokens()) return internal_error("a rank that computes all tokens accompanies no other");
  Communicator& group = *parts_->options.communicator;
  Event& passed = *accompanied_[next_accompanied_];
  next_accompanied_ = (next_accompanied_ + 1) % accompanied_.size();
  const Status ran = [&]() -> Status {
    TRY(wait_for(passed));  // for the oldest idle forward
    TRY(step_.accompany(TRY(dispatcher_.decide(TRY(agree_on_shape(group, {}))))));
    return parts_->stream->record(passed);
  }();
  return or_end_group(ran);
}

Status ModelRunner::end_accompanied() {
  return has_own_tokens() ? or_end_group(parts_->stream->synchronize()) : ok_status();
}

// Where ranks have tokens of their own, a failed forward ends the group: the other ranks wait for its data, or have
// received wrong data.
Status ModelRunner::or_end_group(const Status& ran) {
  if (ran.ok() || !has_own_tokens()) return ran;
  parts_->options.communicator->abort(ran.message());
  return device_lost(ran.message());
}

Status ModelRunner::follow(const ForwardInputs& inputs, const Decision& decision) {
  step_.forget_failure();
  TRY(check_inputs(inputs));
  return submit_here(inputs, decision, /*alone=*/false).status();
}

// A size with replays that keep failing on any rank is dropped on all ranks.
Result<Decision> ModelRunner::submit_to_ranks(const ForwardInputs& inputs, const Decision& decided) {
  RankGroup& ranks = *parts_->options.ranks;
  TRY(ranks.send_forward(inputs, decided));
  if (collects_as_it_runs()) {
    deferred_.push(ranks.last_forward(), inputs);
    return decided;
  }
  Result<Decision> ran = submit_here(inputs, decided, /*alone=*/false);
  if (ran.ok()) return ran;
  const RankGroup::Failure failure = ranks.forward_failed(ran.status(), step_.replay_failed());
  if (failure.replay_failed && failure.status.code() != StatusCode::kDeviceLost)
    TRY(dispatcher_.replay_failed(decided, failure.status));
  return failure.status;
}

// Returns the inputs as a stage without a head sees them: it samples nothing and computes no logits.
ForwardInputs ModelRunner::of_stage(const ForwardInputs& inputs) const {
  if (parts_->graphs.has_head) return inputs;
  return {.batch = inputs.batch,
          .rope_positions = inputs.rope_positions,
          .force_eager = inputs.force_eager,
          .replay_graphs = inputs.replay_graphs};
}

Result<Decision> ModelRunner::submit_here(const ForwardInputs& asked, const Decision& decided, bool alone) {
  const ForwardInputs inputs = of_stage(asked);
  const Decision decision = TRY(enqueue(inputs, decided, alone));
  if (parts_->options.communicator != nullptr) {
    digests_[static_cast<std::size_t>(next_flight_)] = digest_of(inputs.logits, inputs.hidden_states);
    decisions_[static_cast<std::size_t>(next_flight_)] = decision;
  }
  next_flight_ = (next_flight_ + 1) % max_in_flight();
  ++in_flight_;
  counters_.add(decision, inputs.batch.num_tokens(), inputs.batch.is_decode());
  return decision;
}

Result<StepOutputs> ModelRunner::collect() {
  if (in_flight() == 0) return internal_error("no forward is in flight to be collected");
  RankGroup* const ranks = parts_->options.ranks;
  if (ranks == nullptr || !ranks->leads()) return collect_here();
  if (!ran_.empty()) {
    Result<StepOutputs> oldest = std::move(ran_.front());
    ran_.pop_front();
    return oldest;
  }
  if (deferred_.size() > 0) return run_deferred();
  const Status sent = ranks->send_collect();
  const Decision decision = decisions_[oldest_flight()];
  Result<StepOutputs> outputs = collect_here();
  TRY(sent);
  const RankGroup::Failure failure = ranks->collected(outputs.status(), digest_);
  if (failure.status.ok()) {
    dispatcher_.replay_succeeded(decision);
    return outputs;
  }
  // A rank whose launch failed after the last collective has not delayed other ranks.
  if (failure.replay_failed && failure.status.code() != StatusCode::kDeviceLost)
    TRY(dispatcher_.replay_failed(decision, failure.status));
  return failure.status;
}

// On a device that runs beside the host, the other ranks' work continues while rank 0 waits for its own.
bool ModelRunner::collects_as_it_runs() const {
  Communicator* const communicator = parts_->options.communicator;
  return communicator != nullptr && communicator->pipeline() != nullptr && parts_->device.properties().on_host;
}

// Runs all deferred forwards. The ranks of this stage carry out an order only after the forwards sent before it, and
// those need this rank.
void ModelRunner::run_all_deferred() {
  while (!runs_deferred_ && deferred_.size() > 0) ran_.push_back(run_deferred());
}

// Runs the oldest deferred forward. Where a forward fails on any rank, all forwards in flight fail.
Result<StepOutputs> ModelRunner::run_deferred() {
  runs_deferred_ = true;
  Result<StepOutputs> outputs = run_oldest();
  runs_deferred_ = false;
  return outputs;
}

Result<StepOutputs> ModelRunner::run_oldest() {
  step_.forget_failure();
  const ForwardInputs inputs = TRY(deferred_.take());
  const Decision decision = deferred_.decision();
  const Result<Decision> ran = submit_here(inputs, decision, /*alone=*/false);
  Result<StepOutputs> outputs = ran.ok() ? collect_here() : ran.status();
  RankGroup::Failure failure = parts_->options.ranks->ran(outputs.status(), step_.replay_failed(), digest_);
  if (failure.status.ok()) {
    dispatcher_.replay_succeeded(decision);
    return outputs;
  }
  deferred_.fail(failure.status);
  if (failure.replay_failed && failure.status.code() != StatusCode::kDeviceLost)
    TRY(dispatcher_.replay_failed(decision, failure.status));
  return std::move(failure.status);
}

Result<StepOutputs> ModelRunner::collect_here() {
  const std::size_t oldest = oldest_flight();
  --in_flight_;
  TRY(or_end_group(wait_for(*done_[oldest])));
  TRY(check_group());
  if (parts_->profiler != nullptr) TRY(parts_->profiler->collected());
  const StepOutputs outputs = results_.finish(static_cast<int>(oldest));
  if (parts_->options.communicator != nullptr) digest_ = digest_of(digests_[oldest], outputs);
  return outputs;
}

// Checks the group after a forward: kernels that waited for an ended group return with incomplete data. Where the ranks
// compute all tokens together, the group checks this itself (rank_group.h).
Status ModelRunner::check_group() const {
  if (!has_own_tokens()) return ok_status();
  const Status status = parts_->options.communicator->status();
  return status.ok() ? status : device_lost(status.message());
}

Status ModelRunner::discard() {
  if (in_flight_ == 0) return internal_error("no forward is in flight to be given up");
  next_flight_ = (next_flight_ + max_in_flight() - 1) % max_in_flight();
  --in_flight_;
  return wait_for(*done_[static_cast<std::size_t>(next_flight_)]);
}

// A failed forward ends the profile, because its events may never pass.
Status ModelRunner::wait_for(Event& done) {
  const StepProfiler::Scope waiting(parts_->profiler, HostWork::kWait);
  Status passed = done.synchronize();
  if (!passed.ok()) parts_->profiler = nullptr;
  return passed;
}

// A forward with a graph that was not launched has changed nothing that matters: the eager run writes its cache slots
// again, and the ids that it reads are still there. One of several ranks cannot repeat it alone, because the other
// ranks have already met it in the graph's collectives.
Result<Decision> ModelRunner::enqueue(const ForwardInputs& inputs, const Decision& decided, bool alone) {
  const ForwardBatch& batch = inputs.batch;
  Decision decision = decided;
  StepResults::Slot& results = results_.begin(next_flight_, inputs);
  if (parts_->profiler != nullptr) parts_->profiler->begin_forward();
  step_.forget_failure();
  for (const EmbeddingWrite& write : batch.embedding_writes) TRY(parts_->embeddings->write(write, *parts_->stream));
  for (const SlotCopy& copy : batch.slot_copies) TRY(parts_->kv->copy(copy, *parts_->stream));
  Status ran = step_.run(inputs, decision, results);
  if (!ran.ok() && alone && step_.replay_failed() && ran.code() != StatusCode::kDeviceLost) {
    TRY(dispatcher_.replay_failed(decision, ran));
    decision = {RunnerKind::kEager, batch.num_tokens(), 0, Reason::kReplayFailed};
    ran = step_.run(inputs, decision, results);
  } else if (ran.ok() && parts_->ranks() == 1) {  // with several ranks this is known only once all have run it
    dispatcher_.replay_succeeded(decision);
  }
  TRY(ran);
  dispatcher_.log(batch, decision);
  if (!results.sampled.empty()) TRY(parts_->inputs->download_sampled(results.sampled, *parts_->stream));
  if (parts_->profiler != nullptr) {
    TRY(parts_->profiler->mark("results"));
    parts_->profiler->submitted(decision);
  }
  TRY(parts_->stream->record(*done_[static_cast<std::size_t>(next_flight_)]));
  return decision;
}

MemoryReport ModelRunner::memory() const {
  MemoryReport report = measure_memory(*parts_, capture_.graph_bytes_of_estimate(), capture_.available());
  report.set(MemoryUse::kStepResults, results_.bytes());
  return report;
}

}  // namespace tessera
