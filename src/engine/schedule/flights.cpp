#include "tessera/engine/schedule/flights.h"

#include <algorithm>

namespace tessera {

Flights::Flights(ModelRunner& runner, StepPace& pace)
    : runner_(runner), pace_(pace), batches_(static_cast<std::size_t>(runner.max_in_flight())) {}

void Flights::enqueued(const ScheduledBatch& batch, StepPace::Clock::time_point begin) {
  const bool decodes = batch.phase() == ForwardPhase::kDecode && batch.batch.is_decode();
  pace_.submitted({.decodes = decodes, .rows = decodes ? batch.num_decoding : batch.batch.num_tokens()}, begin,
                  StepPace::Clock::now());
}

Result<StepOutputs> Flights::collect() {
  const StepPace::Clock::time_point begin = StepPace::Clock::now();
  Result<StepOutputs> outputs = runner_.collect();
  pace_.collected(begin, StepPace::Clock::now());
  return outputs;
}

void Flights::end_oldest() {
  std::rotate(batches_.begin(), batches_.begin() + 1, batches_.end());
  batches_.back().entries.clear();
}

void Flights::forget(const Sequence& sequence) {
  for (ScheduledBatch& batch : batches_) {
    for (ScheduledBatch::Entry& entry : batch.entries)
      if (entry.sequence == &sequence) entry.sequence = nullptr;
  }
}

}  // namespace tessera
