#include "tessera/engine/schedule/flights.h"

#include <algorithm>
#include <chrono>

namespace tessera {

Flights::Flights(ModelRunner& runner, StepPace& pace)
    : runner_(runner),
      pace_(pace),
      batches_(static_cast<std::size_t>(runner.max_in_flight())),
      begins_(batches_.size()) {}

void Flights::enqueued(const ScheduledBatch& batch, StepPace::Clock::time_point begin) {
  begins_[static_cast<std::size_t>(count()) - 1] = begin;
  const bool decodes = batch.phase() == ForwardPhase::kDecode && batch.batch.is_decode();
  pace_.submitted({.decodes = decodes, .rows = decodes ? batch.num_decoding : batch.batch.num_tokens()}, begin,
                  StepPace::Clock::now());
}

Result<StepOutputs> Flights::collect() {
  const StepPace::Clock::time_point begin = StepPace::Clock::now();
  Result<StepOutputs> outputs = runner_.collect();
  const StepPace::Clock::time_point end = StepPace::Clock::now();
  pace_.collected(begin, end);
  if (outputs.ok() && oldest().phase() != ForwardPhase::kDecode) count_prefill(end);
  last_end_ = end;
  return outputs;
}

void Flights::count_prefill(StepPace::Clock::time_point end) {
  const ScheduledBatch& batch = oldest();
  // Counts all new tokens, and subtracts one token for each decoding request. Generated tokens that are computed again
  // after a preemption count too, because they are a part of the forward's time.
  std::int64_t tokens = -batch.num_decoding;
  for (const ScheduledBatch::Entry& entry : batch.entries) tokens += entry.new_tokens;
  const StepPace::Clock::duration took = end - std::max(begins_.front(), last_end_);
  prefill_.add({.tokens = tokens, .microseconds = std::chrono::duration_cast<std::chrono::microseconds>(took).count()});
}

void Flights::end_oldest() {
  std::rotate(batches_.begin(), batches_.begin() + 1, batches_.end());
  std::rotate(begins_.begin(), begins_.begin() + 1, begins_.end());
  batches_.back().entries.clear();
}

void Flights::forget(const Sequence& sequence) {
  for (ScheduledBatch& batch : batches_) {
    for (ScheduledBatch::Entry& entry : batch.entries)
      if (entry.sequence == &sequence) entry.sequence = nullptr;
  }
}

}  // namespace tessera
