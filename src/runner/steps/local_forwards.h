// Runs this rank's part of a forward after dispatch has decided how the forward runs. Keeps the results and the events
// of the forwards in flight, and counts these forwards.
//
// Threads: the runner's thread. Allocates nothing for sizes that were seen before.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/runner/capture/dispatcher.h"
#include "tessera/runner/forward_counters.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/forward_step.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/step_results.h"

namespace tessera {

class LocalForwards {
 public:
  // All arguments must outlive this object.
  static Result<std::unique_ptr<LocalForwards>> create(RunnerParts& parts, Dispatcher& dispatcher, ForwardStep& step);

  // Checks the inputs of a forward before dispatch decides how the forward runs. `in_flight` is the number of forwards
  // that were submitted and not yet collected.
  Status check(const ForwardInputs& inputs, int in_flight) const;

  // Enqueues a forward by calling begin(), run() and finish(). After success the forward is in flight. A pipeline stage
  // without a head samples nothing and computes no logits, even if the inputs want them.
  ForwardEnd submit(const ForwardInputs& inputs, const Decision& decision);
  // Takes a slot for the results, and enqueues the embedding writes and slot copies that precede the forward.
  Status begin(const ForwardInputs& inputs);
  // Enqueues the forward itself. If a launch failed, run() may be called again.
  ForwardEnd run(const ForwardInputs& inputs, const Decision& decision);
  // Enqueues the download of the sampled tokens, and counts the forward.
  Status finish(const ForwardInputs& inputs, const Decision& decision);

  // Waits for the oldest forward in flight. The forward is no longer in flight afterwards, even after an error.
  // Precondition: a forward is in flight.
  Result<StepOutputs> collect();
  // Waits for the newest forward in flight and drops its results.
  Status discard();
  int in_flight() const { return in_flight_; }
  // Returns a hash of all results of the most recently collected forward. The hash is computed only if rank 0 compares
  // results with other ranks.
  std::uint64_t digest() const { return digest_; }

  // Waits for an event recorded after a forward. If the wait fails, ends profiling, because the profiler's events may
  // never complete.
  Status wait(Event& done);

  ForwardStep& step() { return step_; }
  StepResults& results() { return results_; }
  const StepResults& results() const { return results_; }
  const ForwardCounters& counters() const { return counters_; }

 private:
  struct Flight {
    std::unique_ptr<Event> done;  // recorded after the forward
    std::uint64_t digest = 0;     // hash of the results that submit() filled in
    StepResults::Slot* results = nullptr;
  };

  LocalForwards(RunnerParts& parts, Dispatcher& dispatcher, ForwardStep& step, StepResults results,
                std::vector<Flight> flights)
      : parts_(parts),
        dispatcher_(dispatcher),
        step_(step),
        launcher_(step.launcher()),
        results_(std::move(results)),
        flights_(std::move(flights)),
        has_digests_(parts.model.options.communicator != nullptr && parts.model.graphs.dp_size == 1) {}
  Flight& next() { return flights_[next_]; }
  std::size_t num_flights() const { return flights_.size(); }

  RunnerParts& parts_;
  Dispatcher& dispatcher_;
  ForwardStep& step_;
  Launcher& launcher_;
  StepResults results_;
  std::vector<Flight> flights_;  // [max_in_flight], a ring buffer
  std::size_t next_ = 0;
  int in_flight_ = 0;
  ForwardCounters counters_;
  const bool has_digests_;
  std::uint64_t digest_ = 0;
};

}  // namespace tessera
