#include "tessera/runner/steps/local_forwards.h"

#include <fmt/format.h>

#include "tessera/runner/adapters/adapter_tables.h"
#include "tessera/runner/steps/step_digest.h"

namespace tessera {

Result<std::unique_ptr<LocalForwards>> LocalForwards::create(RunnerParts& parts, Dispatcher& dispatcher,
                                                             ForwardStep& step) {
  const RunnerOptions& options = parts.model.options;
  StepResults results =
      TRY(StepResults::create(parts.model.device, options.max_in_flight, options.max_requests, options.max_tokens));
  std::vector<Flight> flights(static_cast<std::size_t>(options.max_in_flight));
  for (Flight& flight : flights) flight.done = TRY(parts.model.device.create_event());
  return std::unique_ptr<LocalForwards>(
      new LocalForwards(parts, dispatcher, step, std::move(results), std::move(flights)));
}

Status LocalForwards::check(const ForwardInputs& inputs, int in_flight) const {
  if (in_flight == parts_.model.options.max_in_flight)
    return internal_error(fmt::format("{} forwards are in flight, and none was collected", in_flight));
  return tessera::check(
      inputs, {.max_tokens = parts_.model.options.max_tokens,
               .max_requests = parts_.model.options.max_requests,
               .cache_groups = parts_.model.num_cache_groups(),
               .vocab_size = parts_.model.vocab_size,
               .hidden_size = parts_.model.hidden_size,
               .embedding_rows = parts_.memory().embeddings.rows(),
               .embedding_row_values = parts_.memory().embeddings.row_values(),
               .adapter_slots = parts_.memory().adapters == nullptr ? 0 : parts_.memory().adapters->num_slots()});
}

ForwardEnd LocalForwards::submit(const ForwardInputs& inputs, const Decision& decision) {
  const ForwardInputs bare{.batch = inputs.batch,
                           .rope_positions = inputs.rope_positions,
                           .force_eager = inputs.force_eager,
                           .replay_graphs = inputs.replay_graphs};
  const ForwardInputs& own = parts_.model.graphs.has_head ? inputs : bare;
  ForwardEnd end{.status = begin(own)};
  if (end.status.ok()) end = run(own, decision);
  if (end.status.ok()) end.status = finish(own, decision);
  return end;
}

Status LocalForwards::begin(const ForwardInputs& inputs) {
  next().results = &results_.begin(static_cast<int>(next_), inputs);
  if (StepProfiler* const profiler = launcher_.profiler()) profiler->begin_forward();
  for (const EmbeddingWrite& write : inputs.batch.embedding_writes)
    TRY(parts_.memory().embeddings.write(write, parts_.stream()));
  for (const SlotCopy& copy : inputs.batch.slot_copies) TRY(parts_.memory().kv.copy(copy, parts_.stream()));
  return ok_status();
}

ForwardEnd LocalForwards::run(const ForwardInputs& inputs, const Decision& decision) {
  Status ran = step_.run(inputs, decision, *next().results);
  return {.status = std::move(ran), .replay_failed = step_.replay_failed()};
}

Status LocalForwards::finish(const ForwardInputs& inputs, const Decision& decision) {
  dispatcher_.log(inputs.batch, decision);
  const StepResults::Slot& results = *next().results;
  if (!results.sampled.empty()) TRY(parts_.memory().inputs.download_sampled(results.sampled, parts_.stream()));
  if (StepProfiler* const profiler = launcher_.profiler()) {
    TRY(profiler->mark("results"));
    profiler->submitted(decision);
  }
  TRY(parts_.stream().record(*next().done));
  if (has_digests_) next().digest = digest_of(inputs.logits, inputs.hidden_states);
  next_ = (next_ + 1) % num_flights();
  ++in_flight_;
  counters_.add(decision, inputs.batch.num_tokens(), inputs.batch.is_decode_with_drafts());
  return ok_status();
}

Result<StepOutputs> LocalForwards::collect() {
  const std::size_t oldest = (next_ + num_flights() - static_cast<std::size_t>(in_flight_)) % num_flights();
  --in_flight_;
  TRY(wait(*flights_[oldest].done));
  if (StepProfiler* const profiler = launcher_.profiler()) TRY(profiler->collected());
  const StepOutputs outputs = results_.finish(static_cast<int>(oldest));
  if (has_digests_) digest_ = digest_of(flights_[oldest].digest, outputs);
  return outputs;
}

Status LocalForwards::discard() {
  if (in_flight_ == 0) return internal_error("no forward is in flight to be given up");
  next_ = (next_ + num_flights() - 1) % num_flights();
  --in_flight_;
  return wait(*next().done);
}

Status LocalForwards::wait(Event& done) {
  const StepProfiler::Scope waiting(launcher_.profiler(), HostWork::kWait);
  Status passed = done.synchronize();
  if (!passed.ok()) launcher_.set_profiler(nullptr);
  return passed;
}

}  // namespace tessera
