// The forwards in flight, oldest first, with their batches, and the batch that is being scheduled.
#pragma once

#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/schedule/step_pace.h"
#include "tessera/engine/stats/prefill_work.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

class Flights {
 public:
  // Both arguments must outlive this object.
  Flights(ModelRunner& runner, StepPace& pace);

  int count() const { return runner_.in_flight(); }
  int most() const { return runner_.max_in_flight(); }
  // Returns the batch to schedule after those in flight. Precondition: fewer than most() forwards are in flight.
  ScheduledBatch& next() { return batches_[static_cast<std::size_t>(count())]; }

  // Records that the batch of next() was just enqueued. Its scheduling began at `begin`.
  void enqueued(const ScheduledBatch& batch, StepPace::Clock::time_point begin);
  // Waits for the oldest forward, which is then no longer in flight. Its batch stays the oldest until end_oldest().
  Result<StepOutputs> collect();
  ScheduledBatch& oldest() { return batches_.front(); }
  void end_oldest();
  // Removes an ended sequence from the batches.
  void forget(const Sequence& sequence);
  // Returns the prefill tokens of all collected forwards, and the time of the forwards that had such tokens. A
  // forward's time begins when its scheduling begins, or when the preceding forward ends if that is later. It ends when
  // the forward is collected.
  const PrefillWork& prefill() const { return prefill_; }

 private:
  void count_prefill(StepPace::Clock::time_point end);

  ModelRunner& runner_;
  StepPace& pace_;
  std::vector<ScheduledBatch> batches_;              // [most()], oldest first
  std::vector<StepPace::Clock::time_point> begins_;  // [most()]: when the scheduling of each batch began
  StepPace::Clock::time_point last_end_{};           // when the last forward was collected
  PrefillWork prefill_;
};

}  // namespace tessera
