#include "tessera/runner/model_runner.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/ops/collective.h"
#include "tessera/runner/measure_memory.h"

namespace tessera {

ModelRunner::ModelRunner(std::unique_ptr<RunnerParts> parts, StepResults results)
    : parts_(std::move(parts)),
      dispatcher_(*parts_),
      step_(*parts_),
      capture_(*parts_, dispatcher_, step_),
      measurement_(*parts_, dispatcher_),
      full_measurement_(*parts_, dispatcher_),
      results_(std::move(results)) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(ModelGraphs graphs, Weights weights, Device& device,
                                                         RunnerOptions options) {
  StepResults results = TRY(StepResults::create(device, kMaxInFlight, options.max_requests, options.max_tokens));
  std::unique_ptr<RunnerParts> parts =
      TRY(RunnerParts::create(std::move(graphs), std::move(weights), device, std::move(options)));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(std::move(parts), std::move(results)));
  for (std::unique_ptr<Event>& done : runner->done_) done = TRY(device.create_event());
  return runner;
}

Result<bool> ModelRunner::idle_work() {
  if (in_flight_ > 0) return internal_error("idle work is asked for while a forward is in flight");
  if (captures_when_idle()) return capture_.capture_next();
  if (TRY(measurement_.measure_next())) return true;
  return full_measurement_.measure_next();
}

Result<ForwardOutputs> ModelRunner::forward(const ForwardInputs& inputs) {
  ForwardOutputs outputs;
  outputs.decision = TRY(submit(inputs));
  outputs.step = TRY(collect());
  return outputs;
}

Result<Decision> ModelRunner::submit(const ForwardInputs& inputs) {
  if (in_flight_ == kMaxInFlight)
    return internal_error(fmt::format("{} forwards are in flight, and none was collected", in_flight_));
  Result<Decision> decision = enqueue(inputs);
  if (decision.ok()) {
    next_flight_ = (next_flight_ + 1) % kMaxInFlight;
    ++in_flight_;
    counters_.add(*decision, inputs.batch.num_tokens(), inputs.batch.is_decode());
  } else if (parts_->options.communicator != nullptr) {
    parts_->options.communicator->abort(decision.status().message());  // other ranks must not wait for one that failed
  }
  return decision;
}

Result<StepOutputs> ModelRunner::collect() {
  if (in_flight_ == 0) return internal_error("no forward is in flight to be collected");
  const int oldest = (next_flight_ + kMaxInFlight - in_flight_) % kMaxInFlight;
  --in_flight_;
  TRY(wait_for(*done_[static_cast<std::size_t>(oldest)]));
  if (parts_->profiler != nullptr) TRY(parts_->profiler->collected());
  return results_.finish(oldest);
}

// A profile ends with a forward that failed: its events may never pass.
Status ModelRunner::wait_for(Event& done) {
  const StepProfiler::Scope waiting(parts_->profiler, HostWork::kWait);
  Status passed = done.synchronize();
  if (!passed.ok()) parts_->profiler = nullptr;
  return passed;
}

// A forward whose graph was not launched has kept nothing: its cache slots are written again by the eager run, and the
// ids it reads are still there.
Result<Decision> ModelRunner::enqueue(const ForwardInputs& inputs) {
  TRY(check(inputs, {.max_tokens = parts_->options.max_tokens,
                     .max_requests = parts_->options.max_requests,
                     .cache_groups = parts_->num_cache_groups(),
                     .vocab_size = parts_->vocab_size,
                     .hidden_size = parts_->hidden_size,
                     .embedding_rows = parts_->embeddings->rows(),
                     .embedding_row_values = parts_->embeddings->row_values()}));
  const ForwardBatch& batch = inputs.batch;
  Decision decision = TRY(dispatcher_.decide(shape_of(batch, inputs.force_eager)));
  StepResults::Slot& results = results_.begin(next_flight_, inputs);
  if (parts_->profiler != nullptr) parts_->profiler->begin_forward();
  for (const EmbeddingWrite& write : batch.embedding_writes) TRY(parts_->embeddings->write(write, *parts_->stream));
  for (const SlotCopy& copy : batch.slot_copies) TRY(parts_->kv->copy(copy, *parts_->stream));
  Status ran = step_.run(inputs, decision, results);
  // One of several ranks cannot go back alone: the others have met it in the graph's collectives already.
  if (!ran.ok() && step_.replay_failed() && parts_->ranks() == 1 && ran.code() != StatusCode::kDeviceLost) {
    TRY(dispatcher_.replay_failed(decision, ran));
    decision = {RunnerKind::kEager, batch.num_tokens(), 0, Reason::kReplayFailed};
    ran = step_.run(inputs, decision, results);
  } else if (ran.ok()) {
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
